// Working with an agent: prompts, streaming, plans, cancelling, waiting prompts, settings, and all of it by keyboard.

import assert from "node:assert/strict";
import { check, checkEverywhere, DESKTOP, PHONE, until } from "./harness.mjs";

checkEverywhere("a prompt is answered, and both stand in the session and in the list", async (fixture, size) => {
  const person = await fixture.owner(size);
  const session = await person.open("read README.md");
  await person.hears("A small library of knots");
  await person.idle();
  await person.home();
  assert.match(await person.card(session).innerText(), /read README\.md/i);
});

checkEverywhere("an answer grows while the model speaks, and its Markdown is shown as such", { scripted: true }, async (fixture, size) => {
  const person = await fixture.owner(size);
  let goOn;
  const waiting = new Promise((go) => (goOn = go));
  fixture.model.says({ text: "# Knots\n\nFirst **bold** words, then a list:\n\n- one\n- tw" }, { wait: waiting }, { text: "o\n\n```rust\nfn tie() {}\n```\n\nThe end.\n" });
  await person.open("tell me about knots");
  const transcript = person.transcript();
  await transcript.getByText("one", { exact: true }).waitFor();
  assert.equal(await transcript.getByText("The end.").count(), 0, "the rest has not been said");
  assert.ok(await person.working(), "the page says that a turn runs");
  goOn();
  await transcript.getByText("The end.").waitFor();
  await person.idle();
  assert.equal(await transcript.locator("h1, h2, h3, [role=heading]").filter({ hasText: "Knots" }).count(), 1);
  assert.equal(await transcript.locator("strong").filter({ hasText: "bold" }).count(), 1);
  assert.deepEqual(await transcript.locator("li:not([data-row])").allInnerTexts(), ["one", "two"]);
  assert.match(await transcript.locator("pre").first().innerText(), /fn tie\(\) \{\}/);
});

checkEverywhere("a plan is shown with how far it is", async (fixture, size) => {
  const person = await fixture.owner(size);
  await person.open("plan");
  await person.idle();
  const plan = await person.plan();
  assert.match(await plan.innerText(), /Look at what is there[^]*Make the change[^]*Check the result/);
});

checkEverywhere("a turn is cancelled, and the next prompt is answered", async (fixture, size) => {
  const person = await fixture.owner(size);
  await person.open("sleep 60000");
  await until("the turn runs", () => person.working());
  await person.stop();
  await person.idle();
  assert.match(await person.transcript().innerText(), /cancel|stopped/i);
  await person.send("read src/lib.rs");
  await person.hears("pub use knot");
});

checkEverywhere("prompts wait behind a turn, one is withdrawn, the other is done", { scripted: true }, async (fixture, size) => {
  let goOn;
  fixture.model.says({ text: "One moment." }, { wait: new Promise((go) => (goOn = go)) });
  fixture.model.says({ text: "The second is done." });
  const person = await fixture.owner(size);
  await person.open("the first");
  await until("the turn runs", () => person.working());
  await person.send("the withdrawn");
  await person.send("the second");
  await until("both wait", async () => (await person.queue()).length === 2);
  await person.withdraw("the withdrawn");
  await until("one waits", async () => (await person.queue()).length === 1);
  goOn();
  await person.hears("The second is done.");
  await person.idle();
  const asked = fixture.model.requests.map(({ messages }) => JSON.stringify(messages.at(-1)));
  assert.equal(asked.length, 2);
  assert.match(asked[1], /the second/);
});

checkEverywhere("the model and the mode are switched for the next prompt", async (fixture, size) => {
  const person = await fixture.owner(size);
  await person.open("hello");
  await person.idle();
  await person.choose("Model", "Offline, terse");
  await person.choose("Mode", "Ask");
  await person.send("run touch made.txt");
  await person.idle();
  assert.throws(() => fixture.server.read("made.txt"), /ENOENT/, "the mode that only reads has run nothing");
  await person.page.reload();
  await until("the choice is kept", async () => (await person.chosen("Model")) === "Offline, terse");
});

check("everything in a turn can be done with the keyboard alone", { args: ["--approval", "strict"] }, async (fixture) => {
  const person = await fixture.owner(DESKTOP);
  const { keyboard } = person.page;
  await person.open("hello");
  await person.idle();
  await person.home();
  // From the list into the session.
  await person.page.locator("body").click({ position: { x: 1, y: 1 } });
  await keyboard.press("j");
  await keyboard.press("Enter");
  await person.page.waitForURL(/\/s\//);
  await until("the composer has the focus or gets it by Tab", async () => {
    if (await person.composer().evaluate((box) => box === document.activeElement)) return true;
    await keyboard.press("Tab");
    return false;
  });
  await keyboard.type("run echo typed");
  await keyboard.press("Enter");
  await person.ask().waitFor();
  await until("the question has the focus or gets it by Tab", async () => {
    if (await person.ask().evaluate((card) => card.contains(document.activeElement))) return true;
    await keyboard.press("Tab");
    return false;
  });
  await keyboard.press("y");
  await person.hears("typed");
  await person.idle();
  await keyboard.press("Escape");
  await person.page.locator("body").click({ position: { x: 1, y: 1 } });
  await keyboard.press("?");
  await person.page.getByRole("dialog").waitFor();
  await keyboard.press("Escape");
  await person.page.getByRole("dialog").waitFor({ state: "detached" });
});

check("a draft survives a reload", async (fixture) => {
  const person = await fixture.owner(PHONE);
  await person.open("hello");
  await person.idle();
  await person.composer().fill("half a thou");
  await until("it is kept", () => person.page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }).includes("half a thou")));
  await person.page.reload();
  await until("it is back", async () => (await person.composer().inputValue()) === "half a thou");
});
