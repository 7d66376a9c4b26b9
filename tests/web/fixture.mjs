// The built binary, a model, a push service and people with browsers: everything a test of the web app needs.
//
// A fixture has a server with a home, a workspace and a port of its own, and
// people (a `User` is one browser profile on one device). When it is over, everything it started is ended,
// and every page is judged: nothing was loaded from another host, no rule of the content security policy was
// broken, and no script failed. A test that fails leaves pictures and the server's log in `WEB_RECORDS`.

import { mkdirSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { chromium } from "playwright-core";
import { Model } from "./model.mjs";
import { User } from "./app.mjs";
import { Server } from "./server.mjs";

export { until } from "./until.mjs";


const RECORDS = process.env.WEB_RECORDS ?? path.join(os.tmpdir(), "ropewalk-web-records");

export const PHONE = {
  name: "phone",
  viewport: { width: 390, height: 844 },
  deviceScaleFactor: 2,
  hasTouch: true,
  isMobile: true,
  userAgent:
    "Mozilla/5.0 (Linux; Android 16; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Mobile Safari/537.36",
};

export const DESKTOP = { name: "desktop", viewport: { width: 1440, height: 900 } };

export const SIZES = [PHONE, DESKTOP];

let browsers;

/** One browser for all tests of a file: a profile of its own per person keeps them apart. */
export async function browser() {
  browsers ??= chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      // Whatever a page might try to reach beside the server is not even looked up.
      "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
    ],
  });
  return browsers;
}

export async function closeBrowser() {
  if (browsers) await (await browsers).close();
}

export class Fixture {
  /** @param options settings of the server; see `Server.start`. `scripted` asks for a model of the test's own. */
  static async begin(options = {}) {
    const fixture = new Fixture();
    try {
      if (options.scripted) fixture.model = await Model.start();
      fixture.server = await Server.start({ ...options, model: fixture.model });
    } catch (error) {
      await fixture.end();
      throw error;
    }
    return fixture;
  }

  people = [];
  endings = [];
  model;
  server;

  /** Somebody with a browser, not logged in. */
  async person(size = DESKTOP, options = {}) {
    const person = await User.arrive(await browser(), this.server, size, options);
    this.people.push(person);
    return person;
  }

  /** Somebody who came in by a login link, and looks at the list of sessions. */
  async owner(size = DESKTOP, options = {}) {
    const person = await this.person(size, options);
    await person.enter(await this.server.link());
    return person;
  }

  /** Done when the fixture is over. */
  atEnd(ending) {
    this.endings.push(ending);
  }

  /** What must be true of every page at the end of a test that passed. */
  async judge() {
    for (const person of this.people) await person.judge();
  }

  async record(name) {
    mkdirSync(RECORDS, { recursive: true });
    const base = path.join(RECORDS, name.replace(/[^a-z0-9]+/gi, "-").slice(0, 100));
    writeFileSync(`${base}.log`, this.server?.log ?? "there was no server\n");
    for (const [index, person] of this.people.entries()) {
      const seen = [...person.console, ...person.problems, ...person.refused].join("\n");
      writeFileSync(`${base}-${index}.txt`, seen);
      await person.picture(`${base}-${index}.png`).catch(() => {});
    }
    console.error(`what was seen is in ${base}*`);
  }

  async end() {
    for (const ending of this.endings.reverse()) await ending();
    for (const person of this.people) await person.leave();
    await this.server?.stop();
    await this.model?.stop();
  }
}
