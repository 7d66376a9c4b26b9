// A hub, machines that are connected to it, and people with browsers who are signed in there: what a test of a hub is
// written with. Like a fixture of one server, it is judged when it is over, and what failed leaves its records.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { User } from "./app.mjs";
import { HubServer } from "./hub-server.mjs";
import { Model } from "./model.mjs";
import { browser, closeBrowser, DESKTOP, until } from "./fixture.mjs";

export { DESKTOP, PHONE, until } from "./fixture.mjs";

const TEST_MS = 240_000;
const RECORDS = process.env.WEB_RECORDS ?? path.join(os.tmpdir(), "ropewalk-web-records");

after(closeBrowser);

class HubFixture {
  people = [];
  endings = [];
  model;

  static async begin() {
    const fixture = new HubFixture();
    fixture.model = await Model.start();
    fixture.hub = await HubServer.start();
    return fixture;
  }

  /** Somebody with a browser, and with a device that makes passkeys. */
  async person(size = DESKTOP) {
    const person = await User.arrive(await browser(), this.hub, size);
    this.people.push(person);
    person.keys = await person.context.newCDPSession(person.page);
    await person.keys.send("WebAuthn.enable");
    const options = { protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true };
    await person.keys.send("WebAuthn.addVirtualAuthenticator", { options });
    return person;
  }

  /** The first admin, without a passkey yet. */
  async admin(size = DESKTOP) {
    const person = await this.person(size);
    await person.page.goto(await this.hub.setupLink());
    await person.page.getByRole("textbox", { name: /Your name/ }).fill("ops");
    await person.page.getByRole("button", { name: "Set up" }).click();
    await person.page.getByRole("button", { name: "Later" }).click();
    await person.live();
    return person;
  }

  /** The first admin once more, on another device. */
  async adminAgain(size = DESKTOP) {
    const said = await this.hub.ropewalk("hub", "link", "--person", "ops", "--public-url", this.hub.url);
    const person = await this.person(size);
    await person.page.goto(/http\S+#\S+/.exec(said)?.[0] ?? assert.fail(`no link in: ${said}`));
    await person.page.getByRole("button", { name: "Later" }).click();
    await person.live();
    return person;
  }

  /** A machine of this person, connected with a token that they make in the settings. */
  async connect(person, name, options = {}) {
    await person.goto("/settings/tokens");
    const token = await person.makeToken(name);
    const machine = await this.hub.machine(token, { model: this.model, ...options });
    await person.goto("/settings/machines");
    await until("the machine is here", async () => /online · /.test(await person.page.locator("#settings-machines").innerText()));
    return machine;
  }

  /** Done when the fixture is over, before its processes are ended. */
  atEnd(ending) {
    this.endings.push(ending);
  }

  async record(name) {
    mkdirSync(RECORDS, { recursive: true });
    const base = path.join(RECORDS, name.replace(/[^a-z0-9]+/gi, "-").slice(0, 100));
    writeFileSync(`${base}.log`, [this.hub?.log, ...(this.hub?.machines ?? []).map(({ log }) => log)].join("\n-- a machine --\n"));
    for (const [index, person] of this.people.entries()) {
      writeFileSync(`${base}-${index}.txt`, [...person.console, ...person.problems, ...person.refused].join("\n"));
      await person.picture(`${base}-${index}.png`).catch(() => {});
    }
    console.error(`what was seen is in ${base}*`);
  }

  async end() {
    for (const ending of this.endings.reverse()) await ending();
    for (const person of this.people) await person.leave();
    await this.hub?.stop();
    await this.model?.stop();
  }
}

/** A test with a hub of its own. */
export function check(name, body) {
  test(name, { timeout: TEST_MS }, async () => {
    const fixture = await HubFixture.begin();
    try {
      await body(fixture);
      for (const person of fixture.people) await person.judge();
    } catch (error) {
      await fixture.record(name);
      throw error;
    } finally {
      await fixture.end();
    }
  });
}
