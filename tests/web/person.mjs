// A person with a browser: one profile on one device, and everything that goes wrong in it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** Chromium tells these on the console when a server is away or says no, whatever a page does about it. */
const USUAL = [/WebSocket connection to .* failed/, /net::ERR_(CONNECTION|INTERNET|EMPTY|NETWORK|FAILED)/, /status of 40[139]/, /status of 410/];

export class Person {
  static async arrive(browser, server, size, { theme = "light", permissions = [] } = {}) {
    const { name, ...device } = size;
    const context = await browser.newContext({
      ...device,
      baseURL: server.url,
      colorScheme: theme,
      locale: "en-GB",
      timezoneId: "UTC",
      permissions,
    });
    const person = new this(context, server, name);
    await context.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => {
        console.error(`policy broken: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
      });
    });
    context.on("request", (request) => person.sees(request.url()));
    context.on("page", (page) => person.watch(page));
    person.page = await context.newPage();
    return person;
  }

  constructor(context, server, size) {
    this.context = context;
    this.server = server;
    this.phone = size === "phone";
  }

  console = [];
  problems = [];
  refused = [];
  /** What the page asked of the server, once it was answered. */
  answered = [];

  /** A page, and what it says. */
  watch(page) {
    page.setDefaultTimeout(20_000);
    page.on("console", (message) => {
      const text = message.text();
      this.console.push(`${message.type()}: ${text}`);
      if (message.type() === "error" && !USUAL.some((usual) => usual.test(text))) this.problems.push(text);
    });
    page.on("pageerror", (error) => this.problems.push(`a script failed: ${error.stack ?? error}`));
    page.on("dialog", (dialog) => {
      this.problems.push(`a dialog: ${dialog.message()}`);
      dialog.dismiss().catch(() => {});
    });
    page.on("websocket", (socket) => {
      this.sees(socket.url());
      const asked = new Map();
      socket.on("framesent", ({ payload }) => {
        const request = JSON.parse(payload);
        asked.set(request.id, request);
      });
      socket.on("framereceived", ({ payload }) => {
        const { re } = JSON.parse(payload);
        const request = asked.get(re);
        if (request) this.answered.push(request);
      });
    });
  }

  sees(address) {
    const { protocol, host } = new URL(address);
    if (["data:", "blob:", "about:", "chrome:"].includes(protocol)) return;
    if (host !== new URL(this.server.url).host) this.refused.push(`a request to another host: ${address}`);
  }

  /** Comes in by a link. */
  async enter(link) {
    await this.page.goto(link);
    await this.page.waitForURL((url) => url.pathname === "/" || url.pathname.startsWith("/s/"));
  }

  /** Nothing that was seen in any page may be wrong. */
  async judge() {
    assert.deepEqual([...this.problems, ...this.refused], []);
  }

  /** What axe finds that keeps people out. */
  async obstacles() {
    await this.page.evaluate(AXE);
    const found = await this.page.evaluate(async () => {
      const { violations } = await globalThis.axe.run(document, {
        runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
      });
      return violations.map(({ id, impact, help, nodes }) => {
        const places = nodes.slice(0, 3).map(({ target, failureSummary }) => `${target}: ${failureSummary.split("\n").slice(1, 2)}`);
        return { id, impact, help, places };
      });
    });
    return found.filter(({ impact }) => impact === "serious" || impact === "critical");
  }

  /** Fonts and pictures are there, and everything that was to be painted is. */
  async settled() {
    await this.page.evaluate(async () => {
      await document.fonts.ready;
      await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
      for (let frames = 0; frames < 3; frames += 1) await new Promise((painted) => requestAnimationFrame(painted));
    });
  }

  async picture(file) {
    return this.page.screenshot({ path: file, animations: "disabled", caret: "hide" });
  }

  /** Speaks to the server as the page does, but says what the page would not. Gives the replies in their order. */
  async raw(...requests) {
    return this.online((line, requests) => line.ask(requests), requests);
  }

  /** The state of a session as the server tells it to this person. */
  async state(session) {
    return this.online((line, session) => line.state(session), session);
  }

  /** Does something with a line of our own, beside the page's: kept for as long as the page is. */
  async online(what, value) {
    for (const last of [false, true]) {
      try {
        this.line ??= await this.page.evaluateHandle(openLine);
        return await this.line.evaluate(what, value);
      } catch (error) {
        this.line = undefined;
        if (last) throw error;
      }
    }
  }

  async leave() {
    await this.context.close();
  }
}

/** Runs in the page. */
function openLine() {
  return new Promise((opened, fail) => {
    const proofs = ["proof", "proof.share"].map((name) => JSON.parse(localStorage.getItem(`ropewalk.${name}`)));
    const offered = proofs.filter((proof) => proof !== null).map((proof) => `proof.${proof}`);
    const socket = new WebSocket(`ws://${location.host}/ui/socket`, ["ropewalk.v1", ...offered]);
    const waiting = new Map();
    const views = new Map();
    let last = 0;
    const send = (request) =>
      new Promise((done) => {
        last += 1;
        waiting.set(last, done);
        socket.send(JSON.stringify({ id: last, ...request }));
      });
    const line = {
      ask: (requests) => {
        if (socket.readyState !== WebSocket.OPEN) throw new Error("the line is closed");
        return Promise.all(requests.map(send));
      },
      state: async (session) => {
        const view = new Promise((told) => views.set(session, told));
        const [reply] = await line.ask([{ do: "watch", session, after: null }]);
        if (reply.error) throw new Error(reply.error.message);
        const state = await view;
        await line.ask([{ do: "unwatch", session }]);
        return state;
      },
    };
    socket.onerror = () => fail(new Error("the socket failed"));
    socket.onopen = () => opened(line);
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.re) waiting.get(frame.re)?.(frame);
      if (frame.on === "view" && frame.state) views.get(frame.session)?.(frame.state);
    };
  });
}
