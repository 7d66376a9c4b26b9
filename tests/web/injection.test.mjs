// What comes from models, tools, files and other people is shown and does nothing: `xss/*.json` is the corpus.
//
// Every case must be on the page (it was rendered, not dropped with the rest of its row), and after all of
// them: no script has run, nothing was asked of another host, the policy was not broken, there is no element
// but those of the app, and no link that leads anywhere but to the web.

import assert from "node:assert/strict";
import { check, DESKTOP, PHONE, until } from "./harness.mjs";
import { rememberGlobals, injectionCases, assertInert } from "./injection.mjs";

const QUIET = { scripted: true, args: ["--approval", "full"] };

check("Markdown of a model is inert", QUIET, async (fixture) => {
  const person = await fixture.owner(DESKTOP);
  await rememberGlobals(person);
  const cases = injectionCases("markdown");
  const size = 15;
  for (let from = 0; from < cases.length; from += size) {
    const some = cases.slice(from, from + size);
    fixture.model.says({ text: some.map((text, index) => `case ${from + index}\n\n${text}\n\n`).join("") + "\n\nthe cases are over\n" });
    await (from === 0 ? person.open("say them") : person.send("say more"));
    await until(`cases from ${from}`, async () => (await person.transcript().getByText("the cases are over").count()) > from / size);
    await person.idle();
    await assertInert(person);
  }
});

check("what tools write is inert", QUIET, async (fixture) => {
  const cases = injectionCases("output");
  for (const [index, text] of cases.entries()) fixture.server.write(`out/${index}.txt`, `${text}\ncase ${index} is over\n`);
  fixture.model.says(...cases.map((_, index) => ({ call: ["shell", { command: `cat out/${index}.txt` }] })));
  fixture.model.says({ text: "they are all read" });
  const person = await fixture.owner(PHONE);
  await rememberGlobals(person);
  await person.open("show them");
  await person.hears("they are all read");
  await person.idle();
  await person.expandAll();
  await until("the last case is shown", async () => (await person.transcript().innerText()).includes(`case ${cases.length - 1} is over`));
  await assertInert(person);
});

check("names of files and what is in them are inert, in asks and in diffs", { scripted: true, args: ["--approval", "strict"] }, async (fixture) => {
  const names = injectionCases("names");
  const contents = injectionCases("diff");
  const person = await fixture.owner(DESKTOP);
  await rememberGlobals(person);
  const calls = names.map((name, index) => ({ call: ["write", { path: name, text: contents[index % contents.length] }] }));
  const more = contents.slice(names.length).map((text, index) => ({ call: ["write", { path: `more/${index}.html`, text: `${text}\n` }] }));
  fixture.model.says(...calls, ...more);
  fixture.model.says({ text: "they are all written" });
  const session = await person.open("write them");
  let shown = 0;
  for (;;) {
    const { asks, busy } = await until("something is asked, or all is done", async () => {
      const state = await person.state(session);
      return (state.asks.length > 0 || !state.busy) && state;
    });
    if (!busy) break;
    await person.page.locator(`article[data-ask="${asks[0].ask}"]`).waitFor();
    await assertInert(person);
    shown += 1;
    await person.raw({ do: "answer", session, ask: asks[0].ask, decision: "allowOnce", text: null });
  }
  assert.ok(shown > contents.length / 2, `only ${shown} were asked for`);
  await person.hears("they are all written");
  await person.expandAll();
  await assertInert(person);
  await person.goto(`/s/${session}/changes`);
  const files = person.page.getByRole("navigation", { name: "Changed files" }).getByRole("link");
  await until("changes are listed", async () => (await files.count()) === shown);
  for (let file = 0; file < shown; file += 1) {
    await files.nth(file).click();
    await until("it is open", async () => (await files.nth(file).getAttribute("aria-current")) !== null);
    await assertInert(person);
  }
});

check("titles, prompts and names of devices are inert", { scripted: true }, async (fixture) => {
  const person = await fixture.owner(DESKTOP);
  await rememberGlobals(person);
  for (const title of injectionCases("titles")) {
    fixture.model.title = title;
    fixture.model.says({ text: "done" });
    const [{ ok }] = await person.raw({ do: "open", folder: null, settings: {} });
    assert.ok(ok?.session, JSON.stringify(ok));
    await person.raw({ do: "prompt", session: ok.session, key: "k", text: title, pictures: [] }, { do: "rename", session: ok.session, title: title.slice(0, 200) });
  }
  await person.home();
  await until("they are listed", async () => (await person.cards().count()) >= 20);
  await assertInert(person);
  const name = `<img src=x onerror=xss=1>"'><script>xss=1</script>`;
  const { url } = await person.invite("viewer");
  const phone = await fixture.person(PHONE);
  await phone.page.goto(url.replace(/^https?:\/\/[^/]+/, fixture.server.url));
  await rememberGlobals(phone);
  await phone.knockOnDoor(name);
  await person.words();
  await assertInert(person);
  await assertInert(phone);
});
