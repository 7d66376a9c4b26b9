// A small real model behind the wire of OpenAI's chat completions, as `cargo xtask real-model` starts it:
//   node server.mjs PACKAGES MODEL.gguf
// PACKAGES is the folder that has node-llama-cpp in its node_modules. Says its address on standard output.
//
// One request at a time. The model is too small for tools: they are not shown to it. GET /count says how
// many answers were begun, finished and dropped by the client.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, weights] = process.argv.slice(2);
const require = createRequire(join(packages, "package.json"));
const { getLlama, LlamaChatSession } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);

// A long system prompt takes a small model minutes to read.
const SYSTEM_CHARS_MAX = 300;
const TOKENS_MAX = 400;

const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: weights });
// One thread: on a busy machine several wait for each other, at full speed.
const context = await model.createContext({ contextSize: 4096, threads: 1 });
const sequence = context.getSequence();
const count = { begun: 0, finished: 0, dropped: 0 };
let last = Promise.resolve();

const textOf = (content) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("\n");

async function answer(request, response, body) {
  count.begun += 1;
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const messages = body.messages ?? [];
  const system = textOf(messages.find((message) => message.role === "system")?.content).slice(0, SYSTEM_CHARS_MAX);
  const prompt = textOf(messages.findLast((message) => message.role === "user")?.content);
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (choices, usage) =>
    response.write(
      `data: ${JSON.stringify({ id: "c1", object: "chat.completion.chunk", created: 0, model: body.model, choices, usage })}\n\n`,
    );
  await sequence.clearHistory();
  const session = new LlamaChatSession({ contextSequence: sequence, systemPrompt: system, autoDisposeSequence: false });
  const before = sequence.tokenMeter.getState();
  await session.prompt(prompt, {
    signal: gone.signal,
    stopOnAbortSignal: true,
    maxTokens: TOKENS_MAX,
    temperature: 0,
    onTextChunk: (content) => send([{ index: 0, delta: { content }, finish_reason: null }]),
  });
  session.dispose();
  if (gone.signal.aborted) {
    count.dropped += 1;
    return;
  }
  const used = sequence.tokenMeter.diff(before);
  send([{ index: 0, delta: {}, finish_reason: "stop" }]);
  send([], {
    prompt_tokens: used.usedInputTokens,
    completion_tokens: used.usedOutputTokens,
    total_tokens: used.usedInputTokens + used.usedOutputTokens,
  });
  response.end("data: [DONE]\n\n");
  count.finished += 1;
}

const server = createServer(async (request, response) => {
  if (request.method === "GET") {
    response.writeHead(200, { "content-type": "application/json" });
    return response.end(JSON.stringify(request.url === "/count" ? count : { data: [{ id: "smollm2" }] }));
  }
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = JSON.parse(Buffer.concat(parts).toString());
  last = last.then(() => answer(request, response, body)).catch((error) => {
    console.error(error);
    response.destroy();
  });
});
server.listen(0, "127.0.0.1", () => console.log(`listening on 127.0.0.1:${server.address().port}`));
