// What an agent may do is asked of people: allowed, denied with a reason, held for a moment, answered elsewhere.

import assert from "node:assert/strict";
import { check, checkEverywhere, DESKTOP, PHONE, until } from "./harness.mjs";

const STRICT = { args: ["--approval", "strict"] };

checkEverywhere("a command is shown in full, runs when it is allowed, and not before", STRICT, async (fixture, size) => {
  const person = await fixture.owner(size);
  await person.open("run echo allowed > made.txt");
  const ask = person.ask();
  await ask.waitFor();
  assert.match(await ask.innerText(), /echo allowed > made\.txt/);
  assert.throws(() => fixture.server.read("made.txt"), /ENOENT/);
  await person.allow();
  await person.idle();
  assert.equal(fixture.server.read("made.txt"), "allowed\n");
  await ask.waitFor({ state: "detached" });
});

checkEverywhere("a change is shown as a diff before it is made, and denied with a reason that reaches the model", { ...STRICT, scripted: true }, async (fixture, size) => {
  fixture.model.says({ call: ["edit", { path: "src/knot.rs", old: "turns + 1", new: "turns + 2" }] });
  fixture.model.says({ text: "I leave it as it is." });
  const person = await fixture.owner(size);
  await person.open("add one more turn");
  const ask = person.ask();
  await ask.waitFor();
  assert.match(await ask.innerText(), /turns \+ 2/);
  await person.deny("the number is right, look at the tests");
  await person.hears("I leave it as it is.");
  await person.idle();
  assert.match(fixture.server.read("src/knot.rs"), /turns \+ 1/);
  const told = JSON.stringify(fixture.model.requests.at(-1).messages);
  assert.match(told, /the number is right, look at the tests/);
});

checkEverywhere("what is dangerous needs a long press; a tap does nothing", STRICT, async (fixture, size) => {
  fixture.server.write("build/old.txt", "old\n");
  const person = await fixture.owner(size);
  await person.open("run rm -rf build");
  await person.ask().waitFor();
  const button = person.allowButton();
  await button.click();
  assert.equal(fixture.server.read("build/old.txt"), "old\n", "a tap alone allows nothing");
  assert.equal(await person.ask().count(), 1);
  await button.hover();
  await person.page.mouse.down();
  await person.ask().waitFor({ state: "detached" });
  await person.page.mouse.up();
  await person.idle();
  assert.throws(() => fixture.server.read("build/old.txt"), /ENOENT/);
});

check("several questions are numbered and answered one by one", { ...STRICT, scripted: true }, async (fixture) => {
  // What only reads is done side by side, so both are asked for at once.
  fixture.model.says({ call: ["read", { path: "README.md" }] }, { call: ["read", { path: "notes.txt" }] });
  fixture.model.says({ text: "One was read." });
  const person = await fixture.owner(PHONE);
  await person.open("read two files");
  await until("both are asked", async () => /1 of 2/.test(await person.ask().innerText()));
  const named = async () => /README\.md|notes\.txt/.exec(await person.ask().innerText())?.[0];
  const allowed = await named();
  await person.allow();
  await until("the other is shown", async () => (await named()) !== allowed);
  assert.doesNotMatch(await person.ask().innerText(), /\d of \d/);
  await person.deny();
  await person.hears("One was read.");
  const results = fixture.model.requests.at(-1).messages.filter(({ role }) => role === "tool").map(({ content }) => JSON.stringify(content));
  const read = [/A small library of knots/, /line 17/].map((text) => results.some((result) => text.test(result)));
  assert.deepEqual(read, [allowed === "README.md", allowed === "notes.txt"]);
});

check("an answer here takes the question away there and says who gave it", STRICT, async (fixture) => {
  const desk = await fixture.owner(DESKTOP);
  const session = await desk.open("run echo once > made.txt");
  await desk.ask().waitFor();
  const phone = await fixture.owner(PHONE);
  await phone.goto(`/s/${session}`);
  await phone.ask().waitFor();
  await phone.allow();
  await until("the desk's question is gone", async () => (await desk.ask().count()) === 0);
  await desk.idle();
  await phone.idle();
  assert.equal(fixture.server.read("made.txt"), "once\n");
  assert.deepEqual(await desk.rows(), await phone.rows());
});

check("the inbox has what waits in two sessions, and low risks are answered there", STRICT, async (fixture) => {
  const person = await fixture.owner(PHONE);
  await person.open("run ls");
  await person.ask().waitFor();
  await person.home();
  await person.open("run rm -rf build");
  await person.ask().waitFor();
  await person.goto("/inbox");
  const waiting = person.waiting();
  await until("both wait", async () => (await waiting.count()) === 2);
  const low = waiting.filter({ has: person.page.getByText("ls", { exact: true }) });
  await low.getByRole("button", { name: /allow/i }).click();
  await until("one waits", async () => (await waiting.count()) === 1);
  const high = waiting.first();
  assert.match(await high.innerText(), /rm -rf build/);
  assert.equal(await high.getByRole("button", { name: /allow/i }).count(), 0, "what is dangerous is reviewed first");
  await high.getByRole("link", { name: /review/i }).or(high.getByRole("button", { name: /review/i })).click();
  await person.page.waitForURL(/\/s\/.*\/ask\//);
  await person.ask().waitFor();
  await person.deny();
  await person.idle();
});
