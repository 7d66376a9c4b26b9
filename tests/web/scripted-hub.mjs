// A hub that says what a test wrote down: for screens whose cause is hard to bring about (a machine that is
// offline since this morning, names that want to be more than names), and for what only a hostile hub would say.
//
// It serves the built app under the server's own policy. The socket is Playwright's: what a page sends comes
// here, and what is told here comes to the page.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";

const DIST = process.env.WEB_DIST ?? fileURLToPath(new URL("../../crates/access/web", import.meta.url));
const SOURCE = fileURLToPath(new URL("../../crates/access/src/web_app.rs", import.meta.url));
const KINDS = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml", png: "image/png", webmanifest: "application/manifest+json" };

/** The policy as the server has it, so that both cannot differ. */
function policy() {
  const text = /const POLICY: &str = "([^"]*)"/.exec(readFileSync(SOURCE, "utf8"))?.[1];
  if (!text) throw new Error("web.rs has no policy");
  return text.replace(/\\\n\s*/g, "");
}

export class ScriptedHub {
  static async start(script) {
    const hub = new ScriptedHub();
    Object.assign(hub, script);
    const headers = { "content-security-policy": policy(), "referrer-policy": "no-referrer" };
    hub.http = createServer((request, reply) => hub.serve(request, reply, headers));
    await new Promise((ready) => hub.http.listen(0, "127.0.0.1", ready));
    hub.url = `http://localhost:${hub.http.address().port}`;
    return hub;
  }

  log = "";
  /** Who comes is signed in. */
  welcome = true;
  about = { hub: true, passkeys: true, setup: false };
  role = "owner";
  at = { person: { id: "p1", name: "dev", admin: true, createdAt: 0, seenAt: null, passkeys: 1 }, session: null, until: null };
  machines = [];
  cards = [];
  /** Views by session. */
  views = new Map();
  /** Frames that are told after the list. */
  after = [];
  /** Answers by request: a value, or a function of the request. */
  answers = {};
  asked = [];
  entered = [];
  sockets = new Set();

  serve(request, reply, headers) {
    const { pathname } = new URL(request.url, this.url);
    const json = (status, body) => reply.writeHead(status, { ...headers, "content-type": "application/json" }).end(body === undefined ? "" : JSON.stringify(body));
    if (pathname === "/ui/socket") return json(this.welcome ? 204 : 401);
    if (pathname === "/auth/about") return json(200, this.about);
    if (request.method === "POST") return this.posted(pathname, request, json);
    const name = pathname.slice(1);
    const file = /^[\w.-]+\.\w+$/.test(name) ? name : "index.html";
    try {
      const body = readFileSync(path.join(DIST, file));
      reply.writeHead(200, { ...headers, "content-type": KINDS[file.split(".").pop()] ?? "application/octet-stream" }).end(body);
    } catch {
      json(404);
    }
  }

  async posted(pathname, request, json) {
    let text = "";
    for await (const piece of request.setEncoding("utf8")) text += piece;
    this.entered.push([pathname, JSON.parse(text || "null")]);
    const answer = this.posts?.[pathname];
    if (answer) return json(...answer(JSON.parse(text || "null")));
    json(404, { error: "not_found", message: "nothing is here" });
  }

  /** Everything that a person's pages say to `/ui/socket` comes here. */
  async attend(person) {
    await person.context.routeWebSocket(/\/ui\/socket$/, (socket) => {
      if (!this.welcome) return socket.close({ code: 1008 });
      this.sockets.add(socket);
      socket.onMessage((text) => this.hear(socket, JSON.parse(text)));
      socket.onClose(() => this.sockets.delete(socket));
      const say = (frame) => socket.send(JSON.stringify(frame));
      say({ on: "hello", version: this.version ?? version(), host: "hub", role: this.role, device: "d1", makesRules: false, folder: "", folders: [], sandbox: "", pushKey: null, now: Date.now() });
      say({ on: "at", ...this.at });
      say({ on: "machines", machines: this.machines });
      say({ on: "cards", cards: this.cards, gone: [], older: null });
      for (const frame of this.after) say(frame);
    });
  }

  tell(frame) {
    for (const socket of this.sockets) socket.send(JSON.stringify(frame));
  }

  /** Everybody is shown the door. */
  dismiss() {
    this.welcome = false;
    for (const socket of this.sockets) socket.close({ code: 1008 });
  }

  hear(socket, { id, ...request }) {
    this.asked.push(request);
    const given = this.answers[request.do];
    const answer = typeof given === "function" ? given(request) : given;
    const reply = answer?.error ? { re: id, error: answer.error } : { re: id, ok: answer ?? { is: "done" } };
    socket.send(JSON.stringify(reply));
    if (request.do === "watch" && !answer?.error) {
      const view = this.views.get(request.session);
      if (view) socket.send(JSON.stringify({ on: "view", session: request.session, upto: 9, reset: true, earlier: false, rows: [], appends: [], state: null, ...view }));
    }
  }

  async stop() {
    this.http.closeAllConnections();
    await new Promise((closed) => this.http.close(closed));
  }
}

let built;
/** The version that the app was built for. */
function version() {
  built ??= /^version = "(.+)"/m.exec(readFileSync(fileURLToPath(new URL("../../Cargo.toml", import.meta.url)), "utf8"))?.[1] ?? "";
  return built;
}
