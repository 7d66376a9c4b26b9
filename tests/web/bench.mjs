// What the web app costs in a browser: prints one line of JSON. `cargo xtask bench web` has the goals.
//
// The main thread's time is Chromium's own count of it (`threadTicks`), so a busy machine makes the clock slow but
// not this number. Frames are those that the page was asked to draw.

import { writeFileSync } from "node:fs";
import path from "node:path";
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { exported } from "./long-session.mjs";
import { measurePeer } from "./bench-peer.mjs";
import { anchor, costs, frames, opened, streamed } from "./bench-page.mjs";
import { closeBrowser, DESKTOP, Fixture } from "./fixture.mjs";
import { until } from "./until.mjs";

const STREAM = { perSecond: 500, seconds: 10 };

const report = { ropewalk: {} };
try {
  for (const part of [sizes, stream, long]) {
    Object.assign(report.ropewalk, await part());
    console.error(JSON.stringify(report));
  }
  if (process.env.PEER_BIN) report.opencode = await measurePeer(process.env.PEER_BIN);
} finally {
  await closeBrowser();
}
console.log(JSON.stringify(report));

function sizes() {
  const dist = fileURLToPath(new URL("../../crates/access/web", import.meta.url));
  const script = fileURLToPath(new URL("sizes.mjs", import.meta.url));
  const { firstScriptsGzip, firstGzip } = JSON.parse(execFileSync("node", [script, dist], { encoding: "utf8" }));
  return { first_scripts_kb: firstScriptsGzip / 1024, first_kb: firstGzip / 1024 };
}

/** A session of 100,000 events: opened at its end, and scrolled. */
async function long() {
  const fixture = await Fixture.begin();
  try {
    const file = path.join(fixture.server.folder, "long.json");
    writeFileSync(file, JSON.stringify(exported(fixture.server.workspace)));
    await fixture.server.end();
    const session = (await fixture.server.ropewalk("sessions", "import", file)).trim().split(/\s+/).at(-1);
    await fixture.server.run();
    const person = await fixture.owner(DESKTOP);
    const url = `${fixture.server.url}/s/${session}`;
    const ready = () => document.querySelectorAll('[role="log"] .ended').length > 0;
    const plain = [];
    for (let round = 0; round < 5; round += 1) plain.push(await opened(person.context, url, ready));
    const slow = [];
    for (let round = 0; round < 3; round += 1) slow.push(await opened(person.context, url, ready, 4));
    const middle = median(plain, "ms");
    const { page } = person;
    await page.goto(url);
    await until("it is shown", () => page.evaluate(ready));
    const gaps = await frames(page, '[role="log"]');
    return costs(middle, median(slow, "ms").ms, gaps);
  } finally {
    await fixture.end();
  }
}

/** Markdown at 500 pieces a second: once while it is followed, once while something above it is read. */
async function stream() {
  const fixture = await Fixture.begin({ scripted: true });
  try {
    const person = await fixture.owner(DESKTOP);
    const speech = { count: STREAM.perSecond * STREAM.seconds, perSecond: STREAM.perSecond, text: piece };
    const session = await person.open("hello");
    await until("there is a session", async () => !(await person.state(session)).busy);
    fixture.model.says({ chunks: speech });
    const followed = await streamed(person.page, STREAM.seconds, () => person.send("speak"));
    await until("it is over", async () => !(await person.state(session)).busy, 60_000);
    fixture.model.says({ chunks: speech });
    await person.send("speak again");
    const moved = await anchor(person.page, '[role="log"]', STREAM.seconds - 3);
    return { ...followed, anchor_px: moved };
  } finally {
    await fixture.end();
  }
}

/** Words, lists, code and tables in turn, about ten characters at a time. */
function piece(index) {
  const at = index % 60;
  if (at === 0) return `\n\n## Part ${Math.floor(index / 60)}\n\n`;
  if (at === 20) return "\n\n```rust\n";
  if (at > 20 && at < 35) return `let v${at} = ${index};${at % 2 ? "\n" : " "}`;
  if (at === 35) return "\n```\n\n";
  if (at > 45 && at < 52) return `\n- item ${index} of **it**`;
  return at === 52 ? "\n\n" : `word${index} and `;
}

function median(samples, by) {
  return samples.sort((one, other) => one[by] - other[by])[Math.floor(samples.length / 2)];
}
