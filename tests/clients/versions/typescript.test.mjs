// The official TypeScript SDK, in the versions that the arguments name, as the client of the real binary.
//
// One walk for all of them: new, stream, permission (allow, reject, cancelled), edit, command with live output,
// cancel, load after a restart. Only `connect` knows that the SDK was built anew twice.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable, Writable } from "node:stream";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { fold, questions } from "../history.mjs";

const TAP = path.join(import.meta.dirname, "..", "tap.py");
const DEADLINE_MS = 60_000;
// Kinds of updates that make up what a person reads; every version knows them.
const TEXTS = ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"];
const READ = new Set([...TEXTS, "tool_call", "tool_call_update", "plan"]);

/** The SDK's connection under one set of names. */
function connect(sdk, client, server) {
  const input = Writable.toWeb(server.stdin);
  const output = Readable.toWeb(server.stdout);
  if (sdk.client) {
    const { client: of, agent: to } = sdk.methods;
    const app = sdk
      .client({ name: "rig" })
      .onNotification(of.session.update, ({ params }) => client.sessionUpdate(params))
      .onRequest(of.session.requestPermission, ({ params }) => client.requestPermission(params))
      .onRequest(of.fs.readTextFile, ({ params }) => client.readTextFile(params))
      .onRequest(of.fs.writeTextFile, ({ params }) => client.writeTextFile(params));
    const { agent } = app.connect(sdk.ndJsonStream(input, output));
    return {
      initialize: (params) => agent.request(to.initialize, params),
      newSession: (params) => agent.request(to.session.new, params),
      loadSession: (params) => agent.request(to.session.load, params),
      prompt: (params) => agent.request(to.session.prompt, params),
      cancel: (params) => agent.notify(to.session.cancel, params),
    };
  }
  // Before 0.5 the connection took both ends itself.
  return sdk.ndJsonStream
    ? new sdk.ClientSideConnection(() => client, sdk.ndJsonStream(input, output))
    : new sdk.ClientSideConnection(() => client, input, output);
}

class Editor {
  constructor(sdk, place) {
    this.updates = [];
    this.asked = [];
    this.answer = "allow_once";
    this.waiting = [];
    this.server = spawn("python3", [TAP], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, ROPEWALK_HOME: path.join(place, "home"), ACP_TAP_DIR: path.join(place, "record") },
    });
    this.agent = connect(sdk, this, this.server);
  }

  async sessionUpdate(params) {
    this.updates.push(params);
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  async requestPermission(params) {
    this.asked.push(params);
    if (this.answer === "cancelled") return { outcome: { outcome: "cancelled" } };
    const { optionId } = params.options.find((each) => each.kind === this.answer);
    return { outcome: { outcome: "selected", optionId } };
  }

  async readTextFile({ path: file }) {
    return { content: readFileSync(file, "utf8") };
  }

  async writeTextFile({ path: file, content }) {
    this.wrote = file;
    writeFileSync(file, content);
    return {};
  }

  async initialize(sdk) {
    const hello = await this.agent.initialize({
      protocolVersion: sdk.PROTOCOL_VERSION,
      clientCapabilities: { fs: { readTextFile: true, writeTextFile: true } },
    });
    assert.equal(hello.protocolVersion, 1);
    assert.equal(hello.agentCapabilities.loadSession, true);
  }

  of(sessionId) {
    return this.updates.filter((each) => each.sessionId === sessionId).map((each) => each.update);
  }

  tools(sessionId) {
    return fold(this.of(sessionId)).filter((item) => item.tool);
  }

  async prompt(sessionId, text, answer = "allow_once") {
    this.answer = answer;
    const { stopReason } = await this.agent.prompt({ sessionId, prompt: [{ type: "text", text }] });
    return stopReason;
  }

  async until(what, condition) {
    const deadline = Date.now() + DEADLINE_MS;
    while (!condition()) {
      assert.ok(Date.now() < deadline, `did not happen in time: ${what}`);
      const timer = new Promise((resolve) => setTimeout(resolve, 1000).unref());
      await Promise.race([new Promise((resolve) => this.waiting.push(resolve)), timer]);
    }
  }

  async leave() {
    const exit = once(this.server, "exit");
    this.server.stdin.end();
    assert.equal((await exit)[0], 0, "the server exits with 0 when its input ends");
  }
}

async function walk(sdk, place) {
  const workspace = path.join(place, "workspace");
  mkdirSync(workspace);
  const file = (name) => path.join(workspace, name);
  const prompts = [];
  const editors = [];
  const open = async () => {
    const editor = new Editor(sdk, place);
    editors.push(editor);
    await editor.initialize(sdk);
    return editor;
  };
  try {
    const editor = await open();
    const { sessionId } = await editor.agent.newSession({ cwd: workspace, mcpServers: [] });
    const say = async (text, answer) => {
      prompts.push(text);
      return editor.prompt(sessionId, text, answer);
    };

    assert.equal(await say("stream 3"), "end_turn");
    assert.match(said(editor.of(sessionId)), /chunk 3/);

    assert.equal(await say("run touch allowed.txt", "allow_once"), "end_turn");
    assert.equal(await say("run touch rejected.txt", "reject_once"), "end_turn");
    assert.equal(await say("run touch closed.txt", "cancelled"), "cancelled");
    const there = ["allowed.txt", "rejected.txt", "closed.txt"].map((name) => existsSync(file(name)));
    assert.deepEqual(there, [true, false, false]);
    assert.deepEqual(editor.tools(sessionId).map((tool) => tool.status), ["completed", "failed", "failed"]);

    writeFileSync(file("note.txt"), "one\n");
    assert.equal(await say("edit note.txt: one => two"), "end_turn");
    assert.equal(readFileSync(file("note.txt"), "utf8"), "two\n");
    assert.equal(editor.wrote, file("note.txt"), "the client has written the file");
    const edit = editor.tools(sessionId).at(-1);
    const [diff] = edit.content.filter((item) => item.type === "diff");
    assert.deepEqual([edit.status, diff.oldText, diff.newText], ["completed", "one\n", "two\n"]);

    const text = (tool) => (tool.content ?? []).map((item) => item.content?.text ?? "").join("");
    prompts.push("run echo first; while [ ! -e gate ]; do sleep 0.02; done; echo last");
    const running = editor.prompt(sessionId, prompts.at(-1));
    await editor.until("the first line is seen", () => /^first$/m.test(text(editor.tools(sessionId).at(-1))));
    assert.equal(editor.tools(sessionId).at(-1).status, "in_progress");
    writeFileSync(file("gate"), "");
    assert.equal(await running, "end_turn");
    const command = editor.tools(sessionId).at(-1);
    assert.equal(command.status, "completed");
    assert.match(text(command), /^first\nlast$/m);

    const other = await editor.agent.newSession({ cwd: workspace, mcpServers: [] });
    const flood = editor.prompt(other.sessionId, "stream 100000");
    await editor.until("the stream began", () => said(editor.of(other.sessionId)) !== "");
    await editor.agent.cancel({ sessionId: other.sessionId });
    assert.equal(await flood, "cancelled");
    assert.equal(await editor.prompt(other.sessionId, "stream 2"), "end_turn");
    const streamed = editor.of(sessionId);
    await editor.leave();

    const again = await open();
    await again.agent.loadSession({ sessionId, cwd: workspace, mcpServers: [] });
    await again.until("the replay is handled", () => said(again.of(sessionId)).length >= said(streamed).length);
    const replayed = again.of(sessionId);
    assert.deepEqual(questions(replayed), prompts);
    assert.equal(said(replayed), said(streamed));
    assert.deepEqual(again.tools(sessionId), fold(streamed).filter((item) => item.tool));
    assert.equal(await again.prompt(sessionId, "stream 2"), "end_turn");
    await again.leave();
    return dropped(path.join(place, "record"), [...editor.updates, ...again.updates]);
  } finally {
    for (const { server } of editors.filter(({ server }) => server.exitCode === null)) {
      // Its folder is removed next.
      const exit = once(server, "exit");
      server.kill("SIGTERM");
      await exit;
    }
  }
}

/** All that the agent said. Old versions drop the messages' ids, so that messages are not told apart. */
function said(updates) {
  const spoken = updates.filter((update) => update.sessionUpdate === "agent_message_chunk");
  return spoken.map((update) => update.content.text).join("");
}

/** The kinds of updates that the server sent and the SDK did not hand on. */
function dropped(record, updates) {
  const sent = new Set();
  for (const name of readdirSync(record)) {
    for (const entry of readFileSync(path.join(record, name), "utf8").trim().split("\n")) {
      const { from, line } = JSON.parse(entry);
      const frame = from === "server" ? JSON.parse(line) : {};
      if (frame.method === "session/update") sent.add(frame.params.update.sessionUpdate);
    }
  }
  for (const { update } of updates) sent.delete(update.sessionUpdate);
  return [...sent].sort();
}

const [installed, ...wanted] = process.argv.slice(2);
for (const version of wanted) {
  test(version, { timeout: 3 * DEADLINE_MS }, async () => {
    const place = mkdtempSync(path.join(tmpdir(), "ropewalk-sdk-"));
    const record = process.env.ACP_TAP_DIR;
    // It complains there about each update that it does not know.
    console.error = () => {};
    try {
      const folder = path.join(installed, "node_modules", version.replace(/[@/]/g, "-").slice(1));
      const { main } = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf8"));
      const sdk = await import(pathToFileURL(path.join(folder, main)).href);
      const unknown = await walk(sdk, place);
      console.log(`${version}: ${unknown.length ? `does not know ${unknown.join(", ")}` : "knows every update"}`);
      assert.ok(!unknown.some((kind) => READ.has(kind)), "what a person reads arrives");
    } finally {
      if (record) {
        mkdirSync(record, { recursive: true });
        for (const name of readdirSync(path.join(place, "record"))) {
          writeFileSync(path.join(record, name), readFileSync(path.join(place, "record", name)));
        }
      }
      rmSync(place, { recursive: true, force: true });
    }
  });
}
