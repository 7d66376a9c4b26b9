// A long session as a file that `ropewalk sessions import` takes: turns as people have them, with thoughts, tools
// and streamed Markdown. The same turns can be had as plain data, for other programs that are measured.

export const EVENTS = 100_000;

/** What happens in a turn, whoever stores it. */
export function turn(index) {
  const name = `part_${index}`;
  return {
    prompt: `Please look at ${name} and make it faster; the tests are in tests/${name}.rs.`,
    thought: `The function ${name} copies its input. I should read it first and then measure.`,
    read: { path: `src/${name}.rs`, text: Array.from({ length: 30 }, (_, line) => `${line + 1}: let value_${line} = compute(${index}, ${line});\n`).join("") },
    shell: { command: `cargo test ${name}`, lines: Array.from({ length: 24 }, (_, line) => `test ${name}::case_${line} ... \u001b[32mok\u001b[0m\n`) },
    edit: { path: `src/${name}.rs`, before: `fn ${name}() {\n    slow(${index})\n}\n`, after: `fn ${name}() {\n    fast(${index})\n}\n` },
    said: pieces(answer(index, name), 10),
  };
}

function answer(index, name) {
  const lines = [`## What I changed in \`${name}\``, "", `The function copied its input **${index + 2} times**; it borrows it instead.`, ""];
  for (let at = 0; at < 6; at += 1) lines.push(`- step ${at}: the loop over \`items\` was moved out of \`${name}\`, see [the guide](https://example.org/${at})`);
  lines.push("", "```rust", `pub fn ${name}(input: &str) -> usize {`);
  for (let at = 0; at < 12; at += 1) lines.push(`    let line_${at} = input.lines().nth(${at}).map_or(0, str::len);`);
  lines.push("    line_0", "}", "```", "", "| case | before | after |", "|---|--:|--:|");
  for (let at = 0; at < 5; at += 1) lines.push(`| ${name} ${at} | ${at * 17 + index} ms | ${at * 3} ms |`);
  lines.push("", "All tests pass.", "");
  return lines.join("\n");
}

function pieces(text, size) {
  return text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [];
}

/** The session in the form of an export. */
export function exported(folder) {
  const events = [];
  const began = Date.UTC(2026, 0, 5, 9);
  const person = { surface: { id: 1, name: "desk" } };
  let message = 1_048_576;
  const add = (turn, origin, event_type, payload) => {
    events.push({ event_type, version: 1, seq: events.length + 1, at: began + events.length * 40, turn, origin, payload });
  };
  for (let index = 0; events.length < EVENTS; index += 1) {
    const number = index + 1;
    const { prompt, thought, read, shell, edit, said } = turn(index);
    const agent = (kind, payload) => add(number, "agent", kind, payload);
    const tool = (tool, kind, title, input, middle, end) => {
      const call = `call-${number}-${tool}`;
      agent("tool_started", { call, tool, title, kind, input: JSON.stringify(input) });
      middle(call);
      agent("tool_ended", { call, elapsed_ms: 12, ...end });
    };
    add(number, person, "turn_started", {});
    add(number, person, "user_message", { content: [{ text: prompt }] });
    for (const text of pieces(thought, 12)) agent("thought", { message, text });
    tool("read", "read", `Read ${read.path}`, { path: read.path }, () => {}, { content: [{ block: { text: read.text } }] });
    tool("shell", "execute", shell.command, { command: shell.command }, (call) => {
      for (const text of shell.lines) agent("tool_output", { call, stream: "stdout", text });
    }, { content: [{ block: { text: shell.lines.join("") } }], exit: { code: 0 } });
    tool("edit", "edit", `Edit ${edit.path}`, { path: edit.path }, (call) => {
      agent("file_edited", { call, change: { path: `${folder}/${edit.path}`, before: edit.before, after: edit.after } });
    }, {});
    message += 1;
    for (const text of said) agent("text", { message, text });
    message += 1;
    agent("usage", { context_used: 20_000, context_size: 200_000, input: 20_000, output: 900, cache_read: 0, cache_write: 0, reasoning: 0, cost_usd: 0.01 });
    agent("turn_ended", { stop: "end_turn" });
  }
  const session = { title: "A long session", cwd: folder, source: "run", parent_id: null };
  return { schema: "ropewalk.session/1", session: { id: "00000000-0000-4000-8000-000000000000", ...session, created_at: "2026-01-05T09:00:00.000Z", updated_at: "2026-01-05T17:00:00.000Z", status: "idle", events: events.length }, events };
}
