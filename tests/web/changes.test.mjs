// Reviewing what an agent changed: hunk by hunk, kept or put back, with the file on disk as the judge.

import assert from "node:assert/strict";
import { checkEverywhere, until } from "./harness.mjs";

const AUTO = { args: ["--approval", "full"] };

checkEverywhere("one hunk is kept, another is taken back, and the file says so", { ...AUTO, scripted: true }, async (fixture, size) => {
  const before = fixture.server.read("notes.txt");
  const first = before.replace("line 3\n", "line three\n");
  fixture.model.says({ call: ["read", { path: "notes.txt" }] });
  fixture.model.says({ call: ["edit", { path: "notes.txt", edits: [{ old: "line 3\n", new: "line three\n" }, { old: "line 36\n", new: "line thirty-six\n" }] }] });
  fixture.model.says({ text: "Two lines are spelled out." });
  const person = await fixture.owner(size);
  const session = await person.open("spell out the numbers");
  await person.hears("Two lines are spelled out.");
  await person.idle();
  await person.review(session, "notes.txt");
  const hunks = person.hunks();
  await until("both hunks are shown", async () => (await hunks.count()) === 2);
  await hunks.filter({ hasText: "line thirty-six" }).getByRole("button", { name: /undo|revert/i }).first().click();
  await until("it is put back on disk", () => fixture.server.read("notes.txt") === first);
  await until("one hunk is left", async () => (await hunks.count()) === 1);
  await hunks.first().getByRole("button", { name: /keep/i }).first().click();
  await until("nothing is left to review", async () => (await hunks.count()) === 0);
  assert.equal(fixture.server.read("notes.txt"), first, "what is kept stays");
  await person.page.reload();
  await person.nothingToReview();
});

checkEverywhere("a new file is taken back whole", AUTO, async (fixture, size) => {
  const person = await fixture.owner(size);
  const session = await person.open("write src/hitch.rs: pub fn hitch() {}");
  await person.idle();
  assert.equal(fixture.server.read("src/hitch.rs"), "pub fn hitch() {}\n");
  await person.review(session, "hitch.rs");
  await until("it is shown", async () => (await person.hunks().count()) === 1);
  await person.hunks().first().getByRole("button", { name: /undo|revert/i }).first().click();
  await until("it is gone", () => assert.throws(() => fixture.server.read("src/hitch.rs"), /ENOENT/) ?? true);
});
