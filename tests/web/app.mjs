// The app as a person finds it: where things are on the screen, and how one works with them.
//
// Everything that knows the app's markup is in this file, by role and label where there is one.

import assert from "node:assert/strict";
import { Person } from "./person.mjs";
import { until } from "./until.mjs";

export class User extends Person {
  // Going about.

  /** Follows an address inside the app without a new page. */
  async goto(path) {
    await this.page.evaluate((path) => {
      history.pushState(null, "", path);
      dispatchEvent(new PopStateEvent("popstate"));
    }, path);
  }

  /** The list of sessions. */
  async home() {
    await this.goto("/");
    await this.page.getByRole("navigation", { name: "Sessions" }).waitFor();
  }

  /** A new session with a first prompt, opened as people do it. Gives its id. */
  async open(prompt) {
    await this.goto("/new");
    const form = this.page.getByRole("main");
    await form.getByRole("textbox", { name: "Message to the agent" }).fill(prompt);
    await form.getByRole("button", { name: "Start" }).click();
    await this.page.waitForURL(/\/s\/[^/]+$/);
    return this.session();
  }

  session() {
    return decodeURIComponent(/\/s\/([^/#]+)/.exec(this.page.url())?.[1] ?? assert.fail(`no session at ${this.page.url()}`));
  }

  cards() {
    return this.page.locator("a[data-session]");
  }

  card(session) {
    return this.page.locator(`a[data-session="${session}"]`);
  }

  // In a session.

  transcript() {
    return this.page.getByRole("log", { name: "Conversation" });
  }

  composer() {
    return this.page.getByRole("textbox", { name: "Message to the agent" });
  }

  async send(text) {
    await this.composer().fill(text);
    await this.page.getByRole("button", { name: /^(Send|Queue)$/ }).click();
    await until("the prompt has left the composer", async () => (await this.composer().inputValue()) === "");
  }

  /** Waits until something was said, in whatever row, opened or not. */
  async hears(text, deadlineMs) {
    const heard = async () => {
      if ((await this.transcript().innerText()).includes(text)) return true;
      const folded = this.transcript().locator('button[aria-expanded="false"]');
      if ((await folded.count()) > 0) await folded.last().click({ timeout: 1000 }).catch(() => {});
      // To open a row far above leaves the end, where what is new is shown.
      const toEnd = this.page.getByRole("button", { name: /^(New output|Jump to the end)$/ });
      if ((await toEnd.count()) > 0) await toEnd.click({ timeout: 1000 }).catch(() => {});
      return false;
    };
    await until(`"${text}" is heard`, heard, deadlineMs);
  }

  async expandAll() {
    const folded = this.transcript().locator('button[aria-expanded="false"]');
    for (let left = 200; left > 0 && (await folded.count()) > 0; left -= 1) await folded.first().click();
  }

  /** Whether the page says that a turn runs. */
  async working() {
    return (await this.page.getByRole("button", { name: "Stop" }).count()) > 0;
  }

  async idle() {
    await until("the turn is over", async () => {
      const ended = await this.transcript().locator(".ended").count();
      return ended > 0 && !(await this.working());
    });
  }

  async stop() {
    await this.page.getByRole("button", { name: "Stop" }).click();
  }

  /** Every row with its text and kind, folded ones too. */
  async rows() {
    await this.expandAll();
    return this.transcript().evaluate((log) =>
      [...log.querySelectorAll("[data-row]")]
        .filter((row) => !row.classList.contains("group"))
        .map((row) => ({ id: Number(row.dataset.row), text: row.textContent.replace(/\s+/g, " ").trim() })),
    );
  }

  /** The steps of the plan: in the panel where there is one, else in a sheet. */
  async plan() {
    if (this.phone) {
      await this.page.getByRole("button", { name: /^Plan \d/ }).click();
      return this.page.getByRole("dialog", { name: "Plan" }).getByRole("list");
    }
    await this.page.getByRole("tab", { name: "Plan" }).click();
    return this.page.getByRole("tabpanel").getByRole("list");
  }

  async queue() {
    return this.page.getByRole("list", { name: "Queued prompts" }).getByRole("listitem").allInnerTexts();
  }

  async withdraw(text) {
    const chip = this.page.getByRole("list", { name: "Queued prompts" }).getByRole("listitem").filter({ hasText: text });
    await chip.getByRole("button", { name: "Remove from queue", exact: true }).click();
  }

  setting(name) {
    return this.page.getByRole("combobox", { name, exact: true });
  }

  async choose(setting, value) {
    await this.setting(setting).selectOption({ label: value });
    await until(`${setting} is ${value}`, async () => (await this.setting(setting).isEnabled()) && (await this.chosen(setting)) === value);
  }

  async chosen(setting) {
    return this.setting(setting).evaluate((select) => select.selectedOptions[0]?.textContent ?? "");
  }

  // What an agent asks.

  ask() {
    return this.page.locator("article[data-ask]");
  }

  allowButton() {
    return this.ask().getByRole("button", { name: /^allow once/i });
  }

  async allow() {
    await this.allowButton().click();
  }

  async deny(why) {
    if (why === undefined) return this.ask().getByRole("button", { name: "Deny", exact: true }).click();
    await this.ask().getByRole("button", { name: /deny and say why/i }).click();
    await this.ask().getByRole("textbox").fill(why);
    await this.ask().getByRole("button", { name: "Deny", exact: true }).click();
  }

  /** What waits, as the inbox lists it. */
  waiting() {
    return this.page.getByRole("main").locator(".ask-line");
  }

  // Reviewing.

  /** The changes of a file, found in the list of all. */
  async review(session, file) {
    await this.goto(`/s/${session}/changes`);
    await this.page.getByRole("navigation", { name: "Changed files" }).getByRole("link").filter({ hasText: file }).click();
  }

  /** Hunks that nobody has decided about. */
  hunks() {
    return this.page.getByRole("main").locator(".hunk").filter({ has: this.page.getByRole("button", { name: "Keep", exact: true }) });
  }

  async nothingToReview() {
    await this.page.getByText(/no changes to review/i).waitFor();
  }

  // The line.

  async live() {
    await until("the page is live", async () => !(await this.away()) && (await this.page.getByText("Connection: Live").count()) > 0);
  }

  /** Whether the page says that there is no connection. */
  async away() {
    return (await this.page.locator(".banner").filter({ hasText: /Reconnecting|Offline|Connecting/ }).count()) > 0;
  }

  async saysItIsAway() {
    await this.page.locator(".banner").filter({ hasText: /(Reconnecting|Offline).*last update/ }).waitFor();
  }

  async serviceWorker() {
    await this.page.evaluate(async () => {
      const registration = await navigator.serviceWorker.ready;
      if (!registration.active) throw new Error("there is no service worker");
    });
    await until("the shell is kept", () => this.page.evaluate(async () => Boolean(await caches.match("/app.js"))));
  }

  // Devices.

  /** A code for another device: its address, and what would be typed. */
  async invite(role) {
    await this.goto("/settings/devices");
    await this.page.getByRole("button", { name: "Add device" }).click();
    await this.page.getByRole("radio", { name: new RegExp(`^${role}`, "i") }).check({ force: true });
    await this.page.getByRole("button", { name: "Create code" }).click();
    const code = (await this.page.locator(".ticket-code").innerText()).trim();
    await this.context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await this.page.getByRole("button", { name: "Copy link" }).click();
    const url = await until("the link is copied", () => this.page.evaluate(() => navigator.clipboard.readText()));
    return { url, code };
  }

  knock() {
    return this.page.locator(".knock");
  }

  async words() {
    await this.knock().waitFor();
    return (await this.knock().locator(".knock-words").innerText()).trim();
  }

  async admit() {
    await this.knock().getByRole("button", { name: "Approve" }).click();
  }

  async refuse() {
    await this.knock().getByRole("button", { name: "Reject" }).click();
  }

  async revoke(name) {
    await this.goto("/settings/devices");
    const entry = this.page.getByRole("listitem").filter({ hasText: name });
    await entry.getByRole("button", { name: "Revoke" }).click();
    await entry.getByRole("button", { name: "Revoke" }).click();
  }

  // At a hub.

  /** The sheet with the links to the session that is shown. */
  async openShares() {
    await this.page.getByRole("button", { name: "Session menu" }).click();
    await this.page.getByRole("menuitem", { name: "Share" }).click();
    await this.page.getByRole("dialog", { name: "Share this session" }).getByRole("button", { name: "Create link" }).waitFor();
  }

  /** A link to the session that is shown, made as people do it. Gives it. */
  async share(role, end) {
    await this.openShares();
    const sheet = this.page.getByRole("dialog", { name: "Share this session" });
    await sheet.getByRole("radio", { name: new RegExp(`^${role}`, "i") }).check({ force: true });
    await sheet.getByRole("radio", { name: end }).check({ force: true });
    await sheet.getByRole("button", { name: "Create link" }).click();
    return sheet.getByLabel("Link to the session").inputValue();
  }

  /** A token for a machine, made in the settings. Gives it. */
  async makeToken(name) {
    await this.page.getByLabel("Which machine is it for?").fill(name);
    await this.page.getByRole("button", { name: "Create token" }).click();
    return this.page.getByLabel("Token", { exact: true }).inputValue();
  }

  /** Says that the machine of the session is offline. */
  awayBar() {
    return this.page.locator(".note-bar.away");
  }

  machineFilter(name) {
    return this.page.getByRole("group", { name: "Machines" }).getByRole("button", { name });
  }

  // At the door.

  async knockOnDoor(name) {
    if (name !== undefined) await this.page.getByRole("textbox", { name: "Device name" }).fill(name);
    await this.page.getByRole("button", { name: "Pair", exact: true }).click();
  }

  async typeCode(code) {
    await this.page.getByRole("textbox", { name: "Code or link" }).fill(code);
    await this.knockOnDoor();
  }

  async wordsShown() {
    const words = this.page.locator(".enter-words");
    await words.waitFor();
    return (await words.innerText()).trim();
  }
}
