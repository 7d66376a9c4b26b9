// A model that says what a test wrote down, at the pace the test wants: OpenAI's Chat Completions on loopback.
//
// Answers are given in order, one per request. A request for a title is answered aside, with the title that
// the test chose, because it comes at any time.

import { createServer } from "node:http";

export class Model {
  static async start() {
    const model = new Model();
    model.server = createServer((request, reply) => {
      model.answer(request, reply).catch(() => reply.destroy());
    });
    await new Promise((ready) => model.server.listen(0, "127.0.0.1", ready));
    return model;
  }

  answers = [];
  requests = [];
  title = "Tie the knot";

  /** The settings that lead to it. */
  settings() {
    const { port } = this.server.address();
    return `[[providers]]
name = "scripted"
wire = "chat"
base_url = "http://127.0.0.1:${port}/v1"
models = ["one", "two"]

[[models]]
id = "scripted:one"
context = 200000
output = 16000
price = { input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }
`;
  }

  /**
   * The next answer: a list of steps, each `{text}`, `{think}`, `{call: [tool, arguments]}`, `{wait: promise}`
   * or `{chunks: {count, perSecond, text: (index) => string}}`.
   */
  says(...steps) {
    this.answers.push(steps);
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((closed) => this.server.close(closed));
  }

  async answer(request, reply) {
    let body = "";
    for await (const piece of request.setEncoding("utf8")) body += piece;
    if (request.method === "GET") return reply.end(JSON.stringify({ data: [{ id: "one" }, { id: "two" }] }));
    const asked = JSON.parse(body);
    reply.writeHead(200, { "content-type": "text/event-stream" });
    const naming = JSON.stringify(asked.messages[0] ?? "").includes("You name conversations");
    if (!naming) this.requests.push(asked);
    const steps = naming ? [{ text: this.title }] : (this.answers.shift() ?? [{ text: "The script is over." }]);
    await new Speech(reply, asked.model).say(steps);
  }
}

class Speech {
  calls = 0;
  length = 0;

  constructor(reply, model) {
    this.reply = reply;
    this.model = model;
  }

  async say(steps) {
    for (const step of steps) {
      if (step.text !== undefined) for (const piece of pieces(step.text)) this.delta({ content: piece });
      if (step.think !== undefined) this.delta({ reasoning_content: step.think });
      if (step.call) this.call(...step.call);
      if (step.wait) await step.wait;
      if (step.chunks) await this.chunks(step.chunks);
    }
    const reason = this.calls > 0 ? "tool_calls" : "stop";
    this.send([{ index: 0, delta: {}, finish_reason: reason }]);
    const spoken = Math.ceil(this.length / 4);
    this.send([], { prompt_tokens: 1200, completion_tokens: spoken, total_tokens: 1200 + spoken });
    this.reply.end("data: [DONE]\n\n");
  }

  /** At an even pace by the clock, so that a late timer is caught up with. */
  async chunks({ count, perSecond, text }) {
    const began = performance.now();
    for (let sent = 0; sent < count && !this.reply.destroyed; ) {
      const due = Math.min(count, Math.floor(((performance.now() - began) * perSecond) / 1000) + 1);
      for (; sent < due; sent += 1) this.delta({ content: text(sent) });
      await new Promise((wake) => setTimeout(wake, 2));
    }
  }

  call(tool, input) {
    const index = this.calls;
    this.calls += 1;
    const call = { index, id: `call_${Date.now()}_${index}`, type: "function", function: { name: tool, arguments: JSON.stringify(input) } };
    this.delta({ tool_calls: [call] });
  }

  delta(delta) {
    this.length += JSON.stringify(delta).length;
    this.send([{ index: 0, delta, finish_reason: null }]);
  }

  send(choices, usage) {
    const chunk = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: this.model, choices, usage };
    this.reply.write(`data: ${JSON.stringify(chunk)}\n\n`);
  }
}

/** A text in words, as models say it. */
function pieces(text) {
  return text.match(/[^]{1,40}/g) ?? [];
}
