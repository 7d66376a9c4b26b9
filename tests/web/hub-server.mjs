// The built binary as a hub, and machines of people that are connected to it.

import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { binary, freePort, parsed, Server } from "./server.mjs";
import { until } from "./until.mjs";

const READY_MS = 30_000;
const STOP_MS = 10_000;
const MIRROR_BYTES_MAX = 64 << 20;
/** Node reads no SQLite before its version 22; Python is here for other tests. */
const READ_LOG = `
import json, sqlite3, sys
db = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True)
rows = db.execute("SELECT body FROM log_entries WHERE log = ? ORDER BY seq", [sys.argv[2]])
print(json.dumps([json.loads(body) for (body,) in rows]))
`;

export class HubServer {
  static async start() {
    const hub = new HubServer();
    hub.folder = mkdtempSync(path.join(os.tmpdir(), "ropewalk-hub-"));
    hub.port = await freePort();
    await hub.run();
    return hub;
  }

  log = "";
  machines = [];
  children = [];

  /** A name, because passkeys are made for names. */
  get url() {
    return `http://localhost:${this.port}`;
  }

  /** Starts the program, again on the same port and data after it ended, and waits until it serves. */
  async run() {
    const args = ["hub", "--listen", `127.0.0.1:${this.port}`, "--public-url", this.url];
    this.child = spawn(binary(), args, { cwd: this.folder, env: this.environment(), stdio: ["ignore", "pipe", "pipe"] });
    this.ended = new Promise((done) => this.child.once("exit", done));
    for (const stream of [this.child.stdout, this.child.stderr]) stream.setEncoding("utf8").on("data", (text) => (this.log += text));
    const ready = async () => {
      if (this.child.exitCode !== null) assert.fail(`the hub does not start:\n${this.log}`);
      return fetch(`${this.url}/health`).then((reply) => reply.ok, () => false);
    };
    await until("the hub serves", ready, READY_MS).catch((error) => assert.fail(`${error.message}\n${this.log}`));
  }

  /** The link for the first admin. */
  async setupLink() {
    return until("there is a link", async () => /http\S+#setup\.\S+/.exec(this.log)?.[0]);
  }

  async ropewalk(...args) {
    const { stdout, stderr } = await promisify(execFile)(binary(), args, { cwd: this.folder, env: this.environment() });
    return stdout + stderr;
  }

  /** A machine of somebody who made this token: `ropewalk up --bridge`. */
  async machine(token, options = {}) {
    const { args = [], env = {}, ...more } = options;
    const machine = await Server.start({
      ...more,
      args: ["--bridge", this.url, "--insecure", ...args],
      env: { ...env, ROPEWALK_BRIDGE_TOKEN: token },
    });
    this.machines.push(machine);
    return machine;
  }

  /** `ropewalk pair` on a machine: the link that it shows, and the words that it shows once somebody came. */
  pairing(machine) {
    const child = spawn(binary(), ["pair", "--role", "driver"], { cwd: machine.workspace, env: machine.environment(), stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (said += text));
    this.children.push(child);
    return {
      link: () => until("a link is shown", async () => /http\S+\/pair#\S+/.exec(said)?.[0]),
      words: () => until("the words are shown", async () => /shows these words: (.+)/.exec(said)?.[1]),
    };
  }

  /** Whether these words stand anywhere in what the hub keeps. */
  keeps(words) {
    const files = readdirSync(this.folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    return files.some((entry) => readIfThere(path.join(entry.parentPath, entry.name)).includes(words));
  }

  /** The session's log as the hub keeps it. */
  mirror(session) {
    const found = execFileSync("python3", ["-c", READ_LOG, path.join(this.folder, "state", "hub.db"), session], { encoding: "utf8", maxBuffer: MIRROR_BYTES_MAX });
    return parsed(found);
  }

  async kill() {
    this.child.kill("SIGKILL");
    await this.ended;
  }

  async stop() {
    for (const child of this.children) child.kill();
    for (const machine of this.machines) await machine.stop();
    if (this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill("SIGTERM");
      const late = setTimeout(() => this.child.kill("SIGKILL"), STOP_MS);
      await this.ended;
      clearTimeout(late);
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  environment() {
    return { PATH: process.env.PATH, HOME: this.folder, ROPEWALK_HOME: path.join(this.folder, "state"), LANG: "C.UTF-8" };
  }
}

/** What is in a file, or nothing if it was renamed or removed since it was listed. */
function readIfThere(file) {
  try {
    return readFileSync(file);
  } catch (error) {
    if (error.code === "ENOENT") return "";
    throw error;
  }
}
