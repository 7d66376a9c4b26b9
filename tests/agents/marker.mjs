// An MCP server with one tool, for `cargo xtask agents`:
//   node marker.mjs FOLDER
// `mark` leaves an empty file of the given name in FOLDER, so that whoever looks sees that it was called.

import { writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";

const folder = process.argv[2];
const tool = {
  name: "mark",
  description: "Leaves an empty file of this name.",
  inputSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
};

function result(method, params) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "rig", version: "1.0.0" },
      };
    case "tools/list":
      return { tools: [tool] };
    case "tools/call":
      writeFileSync(join(folder, basename(params.arguments.name)), "");
      return { content: [{ type: "text", text: "marked" }] };
    case "ping":
      return {};
    default:
      return undefined;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const said = result(method, params ?? {});
  const answer = said ? { result: said } : { error: { code: -32601, message: `${method} is not known` } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
}
