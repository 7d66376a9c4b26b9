// acpx, a headless client for the terminal, drives the real binary.
//
// acpx keeps one server process per session for as long as `--ttl` says, and starts a new one for
// the next prompt after that: every prompt here is followed by a real restart. What it did on the
// wire is read from the tap's records, since acpx itself shows a digest only.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { answers, fold, questions } from "../history.mjs";

const HERE = import.meta.dirname;
const NODE = path.join(HERE, "node_modules", ".bin", "node");
const ACPX = path.join(HERE, "node_modules", "acpx", "dist", "cli.js");
// Quoted: the clone may lie in a path with a space.
const AGENT = `python3 "${path.join(HERE, "..", "tap.py")}"`;
const DEADLINE_MS = 60_000;

let root;
let records;
let workspace;
let count = 0;

before(() => {
  assert.ok(process.env.ROPEWALK_BIN, "ROPEWALK_BIN names the binary under test");
  root = mkdtempSync(path.join(tmpdir(), "ropewalk-acpx-"));
  records = process.env.ACP_TAP_DIR ?? path.join(root, "records");
  mkdirSync(records, { recursive: true });
});

beforeEach(() => {
  count += 1;
  workspace = path.join(root, `workspace-${count}`);
  mkdirSync(workspace);
});

after(() => rmSync(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 }));

/** Starts acpx; the result settles when it ends. */
function start(args, env = {}) {
  const child = spawn(NODE, [ACPX, "--agent", AGENT, "--cwd", workspace, "--format", "json", "--ttl", "1", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    timeout: DEADLINE_MS,
    env: {
      ...process.env,
      HOME: path.join(root, "home"),
      ROPEWALK_HOME: path.join(root, "state"),
      ACP_TAP_DIR: records,
      ...env,
    },
  });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].on("data", (data) => (output[name] += data));
  output.done = new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, ...output }));
  });
  return output;
}

const acpx = (args, env) => start(args, env).done;

const entriesOf = (file) =>
  readFileSync(path.join(records, file), "utf8")
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));

/** The frames of one server process, in order. */
const framesOf = (file) =>
  entriesOf(file)
    .filter((entry) => entry.from)
    .map(({ from, line }) => ({ from, frame: JSON.parse(line) }));

/** Only what happened since `mark`, one list of frames for each server process. */
const recordsSince = (mark) => readdirSync(records).sort().slice(mark);
const processesSince = (mark) => recordsSince(mark).map(framesOf);
const allEnded = (mark) => recordsSince(mark).every((file) => "ended" in (entriesOf(file).at(-1) ?? {}));
const mark = () => readdirSync(records).length;
const updatesIn = (frames) =>
  frames.filter((each) => each.frame.method === "session/update").map((each) => each.frame.params.update);
const requested = (frames) => frames.filter((each) => each.from === "client").map((each) => each.frame.method);

function resultsOf(stdout) {
  return stdout
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line).result)
    .filter(Boolean);
}

const stopReason = (stdout) => resultsOf(stdout).find((result) => result.stopReason)?.stopReason;

async function until(what, condition) {
  const deadline = Date.now() + DEADLINE_MS;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `did not happen in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("a one-shot prompt with an allowed command", async () => {
  const from = mark();
  const { status, stdout, stderr } = await acpx(["--approve-all", "exec", "run touch allowed.txt"]);
  assert.equal(status, 0, stderr);
  assert.equal(stopReason(stdout), "end_turn");
  assert.ok(existsSync(path.join(workspace, "allowed.txt")));
  const [frames] = processesSince(from);
  assert.equal(fold(updatesIn(frames)).find((item) => item.tool).status, "completed");
});

test("a one-shot prompt with a rejected command", async () => {
  const from = mark();
  const { stdout } = await acpx(["--deny-all", "exec", "run touch rejected.txt"]);
  assert.equal(stopReason(stdout), "end_turn");
  assert.ok(!existsSync(path.join(workspace, "rejected.txt")));
  const [frames] = processesSince(from);
  const asked = frames.find((each) => each.frame.method === "session/request_permission").frame;
  const answer = frames.find((each) => each.from === "client" && each.frame.id === asked.id && each.frame.result);
  const chosen = asked.params.options.find((option) => option.optionId === answer.frame.result.outcome.optionId);
  assert.equal(chosen.kind, "reject_once");
  assert.equal(fold(updatesIn(frames)).find((item) => item.tool).status, "failed");
});

test("cancel of a running prompt", async () => {
  assert.equal((await acpx(["sessions", "new"])).status, 0);
  const from = mark();
  const running = start(["prompt", "sleep 50000"]);
  await until("the prompt runs", () =>
    processesSince(from).some((frames) => requested(frames).includes("session/prompt")),
  );
  await until("acpx cancels", () => cancelled(running));
  const { stdout } = await running.done;
  assert.equal(stopReason(stdout), "cancelled");
});

// acpx refuses a cancel until its own record of the running prompt is written, so it is asked again.
function cancelled(running) {
  if (!running.cancelling) {
    running.cancelling = acpx(["cancel"]).then(({ stdout }) => {
      running.cancelling = undefined;
      running.cancelled ||= /"cancelled":\s*true/.test(stdout);
    });
  }
  return running.cancelled;
}

for (const [way, hidden] of [
  ["session/load", "resume"],
  ["session/resume", ""],
]) {
  test(`after a restart the session goes on with ${way}`, async () => {
    const prompts = ["stream 12", "run echo loud", "write note.txt: from acpx"];
    const env = { ACP_TAP_HIDE: hidden };
    const from = mark();
    assert.equal((await acpx(["sessions", "new"], env)).status, 0);
    for (const text of prompts) {
      const { status, stdout, stderr } = await acpx(["--approve-all", "prompt", text], env);
      assert.equal(status, 0, stderr);
      assert.equal(stopReason(stdout), "end_turn");
      // The server that ran this prompt has to be gone before the next one starts.
      await until("acpx lets the server go", () => allEnded(from));
    }
    const processes = processesSince(from);
    assert.equal(processes.length, prompts.length + 1, "each prompt had a server process of its own");
    const last = processes.at(-1);
    assert.ok(requested(last).includes(way));
    const opened = last.findIndex((each) => each.from === "server" && each.frame.id === openingId(last, way));
    const before = updatesIn(last.slice(0, opened));
    if (way === "session/load") {
      assert.deepEqual(questions(before), prompts.slice(0, -1));
      assert.deepEqual(answers(before), answers(processes.slice(0, -1).flatMap(liveUpdates)));
    } else {
      assert.deepEqual(answers(before), [], "resume replays nothing before its reply");
    }
    assert.equal(readFileSync(path.join(workspace, "note.txt"), "utf8").trim(), "from acpx");
  });
}

const openingId = (frames, method) => frames.find((each) => each.frame.method === method).frame.id;

/** The updates that belong to the prompt of this process, without those of the replay before it. */
function liveUpdates(frames) {
  const prompt = frames.findIndex((each) => each.frame.method === "session/prompt");
  return prompt < 0 ? [] : updatesIn(frames.slice(prompt));
}
