// The ways to the real binary: each starts a server and gives the SDK a stream to it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdirSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

const TAP = path.join(import.meta.dirname, "..", "tap.py");
const TOKEN = "the-token-of-the-rig-0123456789";

/** Standard input and output, through the tap. */
async function stdio(home) {
  const server = spawn("python3", [TAP], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, ROPEWALK_HOME: home },
  });
  const stream = acp.ndJsonStream(Writable.toWeb(server.stdin), Readable.toWeb(server.stdout));
  const leave = async () => {
    const exit = once(server, "exit");
    server.stdin.end();
    const [status] = await exit;
    assert.equal(status, 0, "the server exits with 0 when its input ends");
  };
  return { stream, leave, kill: () => server.kill("SIGTERM") };
}

/** A way over the network: `open` makes the SDK's stream to the server at this address. */
const remote = (open) => async (home, workspace) => {
  const server = spawn(process.env.ROPEWALK_BIN, ["serve", "--http", ":0", "--allow-dir", workspace], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, ROPEWALK_HOME: home, ROPEWALK_SERVER_TOKEN: TOKEN },
  });
  const stream = recorded(open(await address(server)));
  const leave = async (connection) => {
    connection.close();
    const exit = once(server, "exit");
    server.kill("SIGTERM");
    const [status] = await exit;
    assert.equal(status, 0, "the server exits with 0 when it is told to");
  };
  return { stream, leave, kill: () => server.kill("SIGTERM") };
};

const http = remote((host) =>
  createHttpStream(`http://${host}/acp`, { headers: { Authorization: `Bearer ${TOKEN}` } }),
);

// As a browser does it, which cannot set headers.
const websocket = remote((host) =>
  createWebSocketStream(`ws://${host}/acp`, { WebSocket, protocols: ["acp.v1", `bearer.${TOKEN}`] }),
);

export const WAYS = { stdio, http, websocket };

/** Where the server listens, which it says on standard error. */
async function address(server) {
  const lines = createInterface({ input: server.stderr });
  for await (const line of lines) {
    const said = /^listening on http:\/\/(\S+)$/.exec(line);
    if (said) {
      // Whoever stops reading would stop the server one day.
      server.stderr.resume();
      await ready(said[1]);
      return said[1];
    }
  }
  assert.fail("the server ended before it listened");
}

/** It listens before it has looked at its sessions; until then it says that it is not ready. */
async function ready(host) {
  const deadline = Date.now() + 60_000;
  while ((await fetch(`http://${host}/ready`)).status !== 200) {
    assert.ok(Date.now() < deadline, "the server does not get ready");
  }
}

let records = 0;

/** The stream, with everything that passes kept as the tap keeps it. */
function recorded(stream) {
  const folder = process.env.ACP_TAP_DIR;
  if (!folder) return stream;
  mkdirSync(folder, { recursive: true });
  records += 1;
  const file = path.join(folder, `remote-${process.pid}-${records}.jsonl`);
  const recorder = (from) =>
    new TransformStream({
      transform(message, controller) {
        appendFileSync(file, `${JSON.stringify({ from, line: JSON.stringify(message) })}\n`);
        controller.enqueue(message);
      },
    });
  const outgoing = recorder("client");
  outgoing.readable.pipeTo(stream.writable).catch(() => {});
  return { readable: stream.readable.pipeThrough(recorder("server")), writable: outgoing.writable };
}
