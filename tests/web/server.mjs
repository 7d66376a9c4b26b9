// The built binary as a server, in a home and a workspace of its own.

import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";

const READY_MS = 30_000;
const STOP_MS = 10_000;

/** What the workspace of every test begins with. */
export const FILES = {
  "README.md": "# Knots\n\nA small library of knots.\n",
  "src/knot.rs": "pub fn tie(turns: u32) -> u32 {\n    turns + 1\n}\n\npub fn untie() {}\n",
  "src/lib.rs": "mod knot;\n\npub use knot::{tie, untie};\n",
  "notes.txt": Array.from({ length: 40 }, (_, line) => `line ${line + 1}\n`).join(""),
};

export class Server {
  /**
   * `model`: a scripted model instead of the offline one. `args`: more arguments of `up`. `env`: more of the
   * environment. `files`: more files of the workspace. `config`: more settings, as TOML. `folder`: where all of it is. `project`: the name of the workspace's folder.
   */
  static async start({ model, args = [], env = {}, files = {}, config = "", folder, project = "knots" } = {}) {
    const server = new Server();
    server.folder = folder ?? mkdtempSync(path.join(os.tmpdir(), "ropewalk-web-"));
    rmSync(server.folder, { recursive: true, force: true });
    server.workspace = path.join(server.folder, project);
    server.home = path.join(server.folder, "home");
    server.port = await freePort();
    server.args = args;
    mkdirSync(path.join(server.home, "state"), { recursive: true });
    for (const [name, text] of Object.entries({ ...FILES, ...files })) server.write(name, text);
    const git = (...words) => execFileSync("git", words, { cwd: server.workspace, env: server.environment() });
    server.env = env;
    git("init", "-q", "-b", "main");
    git("add", "-A");
    git("-c", "user.name=Test", "-c", "user.email=test@example.org", "commit", "-q", "-m", "knots");
    const settings = model ? `${model.settings()}\n${config}` : config;
    writeFileSync(path.join(server.home, "state", "config.toml"), settings);
    server.env = model ? { ...env, ROPEWALK_OFFLINE: "", ROPEWALK_MODEL: "scripted:one" } : env;
    await server.run();
    return server;
  }

  log = "";
  env = {};

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts the program, again on the same port and state after it ended, and waits until it serves. */
  async run() {
    const args = ["up", "--no-open", "--port", String(this.port), "-C", this.workspace, ...this.args];
    this.child = spawn(binary(), args, { cwd: this.workspace, env: this.environment(), stdio: ["ignore", "pipe", "pipe"] });
    this.ended = new Promise((done) => this.child.once("exit", done));
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => (this.log += text));
    }
    const end = Date.now() + READY_MS;
    for (;;) {
      const alive = await fetch(`${this.url}/health`).then((reply) => reply.ok, () => false);
      if (alive) return;
      if (this.child.exitCode !== null || Date.now() > end) assert.fail(`the server does not start:\n${this.log}`);
      await new Promise((wake) => setTimeout(wake, 25));
    }
  }

  /** A link that logs in, once. */
  async link() {
    const said = await this.ropewalk("link");
    return /http\S+\/login#\S+/.exec(said)?.[0] ?? assert.fail(`no link in: ${said}`);
  }

  /** What another command of the program says. */
  async ropewalk(...args) {
    const options = { cwd: this.workspace, env: this.environment() };
    const { stdout, stderr } = await promisify(execFile)(binary(), args, options);
    return stdout + stderr;
  }

  /** The session's log, as the program itself exports it. */
  async events(session) {
    return parsed(await this.ropewalk("sessions", "export", session, "--format", "json")).events;
  }

  read(name) {
    return readFileSync(path.join(this.workspace, name), "utf8");
  }

  write(name, text) {
    const file = path.join(this.workspace, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }

  /** As a power cut does. */
  async kill() {
    this.child.kill("SIGKILL");
    await this.ended;
  }

  async stop() {
    await this.end();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Ends the process in good order; what it kept stays. */
  async end() {
    if (this.child && this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill("SIGTERM");
      const late = setTimeout(() => this.child.kill("SIGKILL"), STOP_MS);
      await this.ended;
      clearTimeout(late);
    }
  }

  /** Its own settings and nobody's keys. */
  environment() {
    return {
      PATH: process.env.PATH,
      HOME: this.home,
      ROPEWALK_HOME: path.join(this.home, "state"),
      ROPEWALK_OFFLINE: "1",
      LANG: "C.UTF-8",
      ...this.env,
    };
  }
}

/** JSON in which numbers that JavaScript would round are texts. */
export function parsed(text) {
  return JSON.parse(text.replace(/(": ?)(\d{16,})(?=\s*[,}])/g, '$1"$2"'));
}

export function binary() {
  return process.env.ROPEWALK_BIN ?? assert.fail("ROPEWALK_BIN names the program to test");
}

export async function freePort() {
  const probe = createServer();
  await new Promise((ready) => probe.listen(0, "127.0.0.1", ready));
  const { port } = probe.address();
  await new Promise((closed) => probe.close(closed));
  return port;
}
