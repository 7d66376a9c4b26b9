// The official TypeScript SDK as the client of the real binary.
//
// The SDK validates every message with its own parsers and drops what it cannot read, so an
// update that arrives here at all is one that an editor built on this SDK would have shown.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import * as acp from "@agentclientprotocol/sdk";
import { answers, fold, questions } from "../history.mjs";
import { WAYS } from "./ways.mjs";

const DEADLINE_MS = 60_000;

let workspace;
let home;

/** A server process with the SDK's client connected to it. */
class Editor {
  static async on(way) {
    return new Editor(await WAYS[way](home, workspace));
  }

  constructor(server) {
    this.updates = [];
    this.asked = [];
    this.answer = "reject_once";
    this.waiting = [];
    this.server = server;
    this.connection = acp
      .client({ name: "rig" })
      .onNotification(acp.methods.client.session.update, ({ params }) => {
        this.updates.push(params);
        this.wake();
      })
      .onRequest(acp.methods.client.session.requestPermission, ({ params }) => this.decide(params))
      .connect(server.stream);
    this.agent = this.connection.agent;
  }

  async decide(request) {
    this.asked.push(request);
    this.wake();
    if (this.answer === "wait") await new Promise((resolve) => (this.release = resolve));
    if (this.answer === "cancelled") return { outcome: { outcome: "cancelled" } };
    const option = request.options.find((each) => each.kind === this.answer);
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  }

  wake() {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  /** Waits for a state, not for a certain message. */
  async until(what, condition) {
    const deadline = Date.now() + DEADLINE_MS;
    while (!condition()) {
      assert.ok(Date.now() < deadline, `did not happen in time: ${what}`);
      await Promise.race([
        new Promise((resolve) => this.waiting.push(resolve)),
        new Promise((resolve) => setTimeout(resolve, 1000).unref()),
      ]);
    }
  }

  initialize() {
    return this.agent.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
      clientInfo: { name: "rig", version: "1" },
    });
  }

  prompt(sessionId, text) {
    return this.agent.request(acp.methods.agent.session.prompt, {
      sessionId,
      prompt: [{ type: "text", text }],
    });
  }

  of(sessionId) {
    return this.updates.filter((each) => each.sessionId === sessionId).map((each) => each.update);
  }

  /** Leaves as an editor does, and expects the server to end well. */
  leave() {
    return this.server.leave(this.connection);
  }
}

async function withEditor(way, use) {
  const editor = await Editor.on(way);
  try {
    await editor.initialize();
    await use(editor);
    await editor.leave();
  } finally {
    editor.server.kill();
  }
}

async function newSession(editor) {
  const session = await editor.agent.request(acp.methods.agent.session.new, { cwd: workspace, mcpServers: [] });
  assert.ok(session.sessionId);
  return session;
}

const tools = (updates) => fold(updates).filter((item) => item.tool);

// One after the other: each has a workspace and a home of its own.
for (const way of Object.keys(WAYS)) {
  describe(way, () => scenario(way));
}

function scenario(way) {
  before(() => {
    assert.ok(process.env.ROPEWALK_BIN, "ROPEWALK_BIN names the binary under test");
    workspace = mkdtempSync(path.join(tmpdir(), "ropewalk-ts-"));
    home = mkdtempSync(path.join(tmpdir(), "ropewalk-ts-home-"));
  });

  after(() => {
    for (const folder of [workspace, home]) rmSync(folder, { recursive: true, force: true });
  });

  test("initialize negotiates version 1 and names what the server can do", async () => {
    const editor = await Editor.on(way);
    const result = await editor.initialize();
    assert.equal(result.protocolVersion, 1);
    assert.equal(result.agentInfo.name, "ropewalk");
    assert.equal(result.agentCapabilities.loadSession, true);
    for (const ability of ["list", "resume", "close", "delete", "additionalDirectories"]) {
      assert.ok(result.agentCapabilities.sessionCapabilities[ability], ability);
    }
    await editor.leave();
  });

  test("a write inside the workspace runs without a question", () =>
    withEditor(way, async (editor) => {
      const { sessionId } = await newSession(editor);
      const { stopReason } = await editor.prompt(sessionId, "write note.txt: hello from the rig");
      assert.equal(stopReason, "end_turn");
      assert.equal(editor.asked.length, 0);
      assert.equal(readFileSync(path.join(workspace, "note.txt"), "utf8").trim(), "hello from the rig");
      const [tool] = tools(editor.of(sessionId));
      assert.equal(tool.status, "completed");
      assert.equal(tool.kind, "edit");
    }));

  test("an allowed command runs and a rejected one does not", () =>
    withEditor(way, async (editor) => {
      const { sessionId } = await newSession(editor);
      editor.answer = "allow_once";
      assert.equal((await editor.prompt(sessionId, "run touch allowed.txt")).stopReason, "end_turn");
      editor.answer = "reject_once";
      assert.equal((await editor.prompt(sessionId, "run touch rejected.txt")).stopReason, "end_turn");

      assert.equal(editor.asked.length, 2, "allow once allows one command only");
      for (const request of editor.asked) {
        const kinds = request.options.map((option) => option.kind);
        assert.deepEqual(kinds.toSorted(), ["allow_always", "allow_once", "reject_always", "reject_once"]);
        assert.equal(new Set(request.options.map((option) => option.optionId)).size, 4);
      }
      assert.ok(existsSync(path.join(workspace, "allowed.txt")));
      assert.ok(!existsSync(path.join(workspace, "rejected.txt")));
      const [allowed, rejected] = tools(editor.of(sessionId));
      assert.equal(allowed.status, "completed");
      assert.equal(rejected.status, "failed");
      assert.deepEqual(
        editor.asked.map((request) => request.toolCall.toolCallId),
        [allowed.tool, rejected.tool],
      );
    }));

  test("cancel ends a running prompt as cancelled, and the session goes on", () =>
    withEditor(way, async (editor) => {
      const { sessionId } = await newSession(editor);
      const running = editor.prompt(sessionId, "stream 100000");
      await editor.until("the stream began", () => editor.of(sessionId).length > 0);
      await editor.agent.notify(acp.methods.agent.session.cancel, { sessionId });
      assert.equal((await running).stopReason, "cancelled");
      const seen = editor.updates.length;
      assert.equal((await editor.prompt(sessionId, "stream 3")).stopReason, "end_turn");
      assert.ok(editor.updates.length > seen, "the next turn is not hit by the old cancel");
    }));

  test("cancel settles an open question and ends its tool call", () =>
    withEditor(way, async (editor) => {
      const { sessionId } = await newSession(editor);
      editor.answer = "wait";
      const running = editor.prompt(sessionId, "run touch never.txt");
      await editor.until("the question came", () => editor.asked.length === 1);
      await editor.agent.notify(acp.methods.agent.session.cancel, { sessionId });
      editor.answer = "cancelled";
      editor.release();
      assert.equal((await running).stopReason, "cancelled");
      const [tool] = tools(editor.of(sessionId));
      assert.equal(tool.status, "failed", "no tool call stays unfinished");
      assert.ok(!existsSync(path.join(workspace, "never.txt")));
    }));

  test("after a restart, load replays exactly what was streamed", async () => {
    const prompts = ["stream 20", "write again.txt: two\nlines", "run echo loud", "run echo no", "think", "plan"];
    let sessionId;
    let streamed;
    await withEditor(way, async (editor) => {
      ({ sessionId } = await newSession(editor));
      for (const text of prompts) {
        editor.answer = text === "run echo no" ? "reject_once" : "allow_once";
        assert.equal((await editor.prompt(sessionId, text)).stopReason, "end_turn");
      }
      streamed = editor.of(sessionId);
    });
    assert.ok(answers(streamed).length >= prompts.length);

    await withEditor(way, async (editor) => {
      const { sessions } = await editor.agent.request(acp.methods.agent.session.list, { cwd: workspace });
      assert.ok(sessions.some((each) => each.sessionId === sessionId), "the session is listed after the restart");
      await editor.agent.request(acp.methods.agent.session.load, { sessionId, cwd: workspace, mcpServers: [] });
      const replayed = editor.of(sessionId);
      assert.deepEqual(questions(replayed), prompts);
      assert.deepEqual(answers(replayed), answers(streamed));
      assert.equal((await editor.prompt(sessionId, "stream 2")).stopReason, "end_turn");
    });
  });
}
