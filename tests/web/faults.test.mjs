// A store or rules that cannot be used: every screen says so, for as long as it is so.

import assert from "node:assert/strict";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { check, checkEverywhere, DESKTOP, until } from "./harness.mjs";

/** What stands above everything. */
const said = (person) => person.page.locator(".banner.bad").allInnerTexts();

checkEverywhere("rules that cannot be read are said on every screen until they are repaired", async (fixture, size) => {
  const rules = path.join(fixture.server.home, "state", "permissions.toml");
  const person = await fixture.owner(size);
  const session = await person.open("read README.md");
  await person.hears("A small library of knots");
  await person.idle();
  assert.deepEqual(await said(person), []);
  writeFileSync(rules, 'deny = ["shell(git pu');
  await until("it is said", async () => (await said(person)).length === 1);
  const [text] = await said(person);
  assert.match(text, /^Permission rules cannot be read, so every action is asked: .*permissions\.toml: .*Run `ropewalk doctor`\.$/);
  assert.deepEqual(await person.obstacles(), []);
  for (const place of ["/", "/inbox", "/settings", `/s/${session}`]) {
    await person.page.goto(new URL(place, fixture.server.url).href);
    await until(`it is said at ${place}`, async () => (await said(person)).length === 1);
  }
  if (process.env.PICTURES) await person.picture(path.join(process.env.PICTURES, `faults-${size.name}.png`));
  rmSync(rules);
  await until("nothing is said", async () => (await said(person)).length === 0);
});

check("a store that cannot be used is said until it can", async (fixture) => {
  // The file alone: beside it stands who is signed in.
  const store = path.join(fixture.server.home, "state", "sessions.db");
  const person = await fixture.owner(DESKTOP);
  await person.open("hello");
  await person.idle();
  renameSync(store, `${store}-moved`);
  await until("it is said", async () => (await said(person)).length === 1);
  const [text] = await said(person);
  assert.match(text, /^The session store cannot be used: .* Nothing is saved\. Run `ropewalk doctor`\.$/);
  renameSync(`${store}-moved`, store);
  await until("nothing is said", async () => (await said(person)).length === 0);
});
