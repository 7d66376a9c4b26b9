// opencode's web page with a session of the same turns, for comparison. It comes out of its own server; the
// session is imported, and the page is opened by the session's address like ours.

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import os from "node:os";
import path from "node:path";
import { exported, turn } from "./long-session.mjs";
import { costs, frames, opened } from "./bench-page.mjs";
import { browser, DESKTOP } from "./fixture.mjs";
import { until } from "./until.mjs";

const SESSION = "ses_000000000001AAAAAAAAAAAAAA";
const MODEL = { providerID: "mock", modelID: "mock-model" };

export async function measurePeer(program) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "ropewalk-peer-"));
  const project = path.join(folder, "project");
  const env = {
    PATH: process.env.PATH,
    HOME: folder,
    OPENCODE_DISABLE_AUTOUPDATE: "1",
    OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
    OPENCODE_DISABLE_MODELS_FETCH: "1",
  };
  let server;
  const context = await (await browser()).newContext({ viewport: DESKTOP.viewport });
  try {
    mkdirSync(project);
    mkdirSync(path.join(folder, ".config/opencode"), { recursive: true });
    writeFileSync(path.join(folder, ".config/opencode/opencode.json"), settings());
    spawnSync("git", ["init", "-q"], { cwd: project, env });
    const turns = exported(project).events.at(-1).turn;
    const file = path.join(folder, "session.json");
    writeFileSync(file, JSON.stringify(session(project, turns)));
    const imported = spawnSync(program, ["import", file], { cwd: project, env, encoding: "utf8", timeout: 300_000 });
    if (imported.status !== 0) throw new Error(`opencode import: ${imported.stdout}${imported.stderr}`);
    const port = await freePort();
    server = spawn(program, ["serve", "--port", String(port)], { cwd: project, env, stdio: "ignore" });
    const origin = `http://127.0.0.1:${port}`;
    await until("opencode serves", () => fetch(`${origin}/session`, { signal: AbortSignal.timeout(5000) }).then((reply) => reply.ok), 60_000);
    const url = `${origin}/${Buffer.from(project).toString("base64url")}/session/${SESSION}`;
    const ready = () => document.body.innerText.includes("All tests pass.");
    const samples = [];
    for (let round = 0; round < 5; round += 1) samples.push(await opened(context, url, ready));
    const slow = [];
    for (let round = 0; round < 3; round += 1) slow.push(await opened(context, url, ready, 4));
    const middle = samples.sort((one, other) => one.ms - other.ms)[2];
    const page = await context.newPage();
    await page.goto(url);
    await until("it is shown", () => page.evaluate(ready), 120_000);
    const gaps = await frames(page, "body");
    return costs(middle, slow.sort((one, other) => one.ms - other.ms)[1].ms, gaps);
  } finally {
    server?.kill("SIGKILL");
    await context.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function settings() {
  const model = { name: "mock-model", tool_call: true, limit: { context: 1_000_000, output: 100_000 } };
  const mock = { npm: "@ai-sdk/openai-compatible", name: "mock", options: { baseURL: "http://127.0.0.1:9/v1", apiKey: "mock" }, models: { "mock-model": model } };
  return JSON.stringify({ autoupdate: false, share: "disabled", model: "mock/mock-model", small_model: "mock/mock-model", provider: { mock } });
}

/** The session in the form of opencode's export. Ids sort by time. */
function session(project, turns) {
  const began = Date.UTC(2026, 0, 5, 9);
  let count = 0;
  const id = (kind) => `${kind}_${(count += 1).toString(16).padStart(12, "0")}AAAAAAAAAAAAAA`;
  const messages = [];
  for (let index = 0; index < turns; index += 1) {
    const { prompt, thought, read, shell, edit, said } = turn(index);
    const at = began + index * 10_000;
    const asked = { id: id("msg"), sessionID: SESSION, role: "user", time: { created: at }, agent: "build", model: MODEL };
    messages.push({ info: asked, parts: [{ id: id("prt"), sessionID: SESSION, messageID: asked.id, type: "text", text: prompt }] });
    const info = {
      id: id("msg"), sessionID: SESSION, role: "assistant", time: { created: at + 10, completed: at + 9000 }, parentID: asked.id, ...MODEL, mode: "build", agent: "build",
      path: { cwd: project, root: project }, cost: 0.01, tokens: { input: 20_000, output: 900, reasoning: 0, cache: { read: 0, write: 0 } }, finish: "stop",
    };
    const part = (body) => ({ id: id("prt"), sessionID: SESSION, messageID: info.id, ...body });
    const time = { start: at + 20, end: at + 30 };
    const tool = (tool, input, output, title) => part({ type: "tool", callID: id("call"), tool, state: { status: "completed", input, output, title, metadata: {}, time } });
    messages.push({
      info,
      parts: [
        part({ type: "reasoning", text: thought, time }),
        tool("read", { filePath: path.join(project, read.path) }, read.text, read.path),
        tool("bash", { command: shell.command, description: shell.command }, shell.lines.join(""), shell.command),
        tool("edit", { filePath: path.join(project, edit.path), oldString: edit.before, newString: edit.after }, "Edit applied", edit.path),
        part({ type: "text", text: said.join(""), time }),
      ],
    });
  }
  const info = { id: SESSION, slug: "a-long-session", version: "1.18.33", projectID: "global", directory: project, title: "A long session", time: { created: began, updated: began + turns * 10_000 } };
  return { info, messages };
}

async function freePort() {
  const probe = createServer();
  await new Promise((ready) => probe.listen(0, "127.0.0.1", ready));
  const { port } = probe.address();
  await new Promise((closed) => probe.close(closed));
  return port;
}
