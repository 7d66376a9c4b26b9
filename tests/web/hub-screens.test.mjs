// What only a hub has, on a scripted one: nobody is kept out, everybody sees what they may, names stay names.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { asGuest, HUB_SCREENS, signedOut, visit } from "./hub-screens.mjs";
import { SESSIONS } from "./hub-data.mjs";
import { rememberGlobals, injectionCases, assertInert } from "./injection.mjs";
import { closeBrowser, DESKTOP, PHONE, SIZES, until } from "./fixture.mjs";

const TEST_MS = 180_000;

after(closeBrowser);

/** A test on a hub of its own; what was seen in its pages is judged at the end. */
function check(name, size, script, body) {
  test(name, { timeout: TEST_MS }, async () => {
    const { hub, person, end } = await visit(size, { script });
    try {
      await body(person, hub);
      await person.judge();
    } finally {
      await end();
    }
  });
}

for (const size of SIZES) {
  for (const theme of ["light", "dark"]) {
    test(`no screen of a hub keeps anybody out (${size.name}, ${theme})`, { timeout: TEST_MS }, async () => {
      const found = [];
      for (const { name, script, show } of HUB_SCREENS) {
        const { person, end } = await visit(size, { theme, script });
        try {
          await show(person);
          found.push(...(await person.obstacles()).map((one) => ({ screen: name, ...one })));
          await person.judge();
        } finally {
          await end();
        }
      }
      assert.deepEqual(found, []);
    });
  }
}

check("a machine that goes away says so, keeps what is written, and takes it when it is back", PHONE, () => {}, async (person, hub) => {
  await person.page.goto(`/s/${SESSIONS.done}`);
  await person.composer().fill("and the other notes");
  const [laptop, ...others] = hub.machines;
  hub.tell({ on: "machines", machines: [{ ...laptop, here: false }, ...others] });
  await person.awayBar().filter({ hasText: /laptop has been offline since \d\d:\d\d/ }).waitFor();
  await person.page.getByRole("button", { name: "Send" }).click();
  await person.page.locator(".toast.bad").filter({ hasText: "You can send when it is back" }).waitFor();
  assert.equal(await person.composer().inputValue(), "and the other notes");
  assert.equal(hub.asked.filter((one) => one.do === "prompt").length, 0);
  hub.tell({ on: "machines", machines: hub.machines });
  await person.awayBar().waitFor({ state: "detached" });
  await person.page.getByRole("button", { name: "Send" }).click();
  await until("it is sent", async () => hub.asked.some((one) => one.do === "prompt" && one.text === "and the other notes"));
});

check("what the hub refuses is told in its words, and can be sent again", DESKTOP, (hub) => {
  hub.answers.prompt = { error: { code: "busy", message: "laptop has been offline since 14:02; try again when it is back" } };
}, async (person) => {
  await person.page.goto(`/s/${SESSIONS.done}`);
  await person.send("hello");
  await person.page.getByText("Not sent: laptop has been offline since 14:02; try again when it is back").waitFor();
  await person.page.getByRole("button", { name: "Edit" }).click();
  assert.equal(await person.composer().inputValue(), "hello");
});

check("sessions are found by their machine", DESKTOP, () => {}, async (person) => {
  await person.page.goto("/");
  await until("all are listed", async () => (await person.cards().count()) === 4);
  await person.machineFilter(/^tower/).click();
  await until("those of one are", async () => (await person.cards().count()) === 1);
  await person.machineFilter("All").click();
  await person.page.getByRole("searchbox", { name: "Filter sessions" }).fill("attic");
  await until("the name of a machine is a word too", async () => (await person.cards().count()) === 1);
  assert.match(await person.cards().first().innerText(), /Was working[^]*attic/);
});

check("a new session is opened on the machine that was chosen, and only on one that is here", PHONE, () => {}, async (person, hub) => {
  await person.page.goto("/new");
  const machines = person.page.getByRole("combobox", { name: "Machine" });
  assert.deepEqual(await machines.locator("option").allInnerTexts(), ["laptop", "tower"]);
  await machines.selectOption("tower");
  await person.composer().fill("port it");
  await person.page.getByRole("button", { name: "Start" }).click();
  await person.page.waitForURL(/\/s\//);
  const opened = hub.asked.filter((one) => one.do === "at" && one.request.do === "open");
  assert.deepEqual(opened.map(({ machine }) => machine), ["m-tower"]);
  assert.ok(!hub.asked.some((one) => one.do === "offer"), "the hub itself is not asked for what a machine offers");
});

for (const size of SIZES) {
  check(`who came by a link sees that session, its role and its end, and nothing else (${size.name})`, size, asGuest, async (person, hub) => {
    await person.page.goto("/");
    await person.page.getByText(/You joined by a link, as viewer, until/).waitFor();
    assert.equal(person.session(), SESSIONS.done);
    assert.equal(await person.composer().count(), 0);
    assert.equal(await person.page.getByRole("navigation", { name: "Sessions" }).count(), 0);
    await person.page.getByRole("button", { name: "Session menu" }).click();
    const items = await person.page.getByRole("menuitem").allInnerTexts();
    assert.ok(!items.some((item) => /Share|Delete|Rename|Copy link/.test(item)), items.join(", "));
    for (const path of ["/inbox", "/new", `/s/${SESSIONS.away}`]) {
      await person.page.goto(path);
      await person.page.getByText("You joined by a link").waitFor();
      assert.equal(person.session(), SESSIONS.done, path);
    }
    hub.dismiss();
    await person.page.getByText("The link to this session has expired or was revoked.").waitFor();
    assert.equal(await person.page.evaluate(() => localStorage.getItem("ropewalk.view")), null, "nothing of it stays in the browser");
  });
}

check("an approver who came by a link answers, and does not write", PHONE, (hub) => {
  asGuest(hub, "approver");
  hub.at.session = SESSIONS.asking;
  hub.machines[0].sessions = [SESSIONS.asking];
}, async (person, hub) => {
  await person.page.goto("/");
  await person.ask().waitFor();
  assert.equal(await person.composer().count(), 0);
  await person.allow();
  await until("it is answered", async () => hub.asked.some((one) => one.do === "answer" && one.decision === "allowOnce"));
});

for (const [kind, path] of [["setup", "/login"], ["join", "/login"], ["share", "/s/x"]]) {
  check(`a ${kind} link leaves nothing in the address, and is not kept`, PHONE, (hub) => {
    signedOut(hub);
    hub.posts = { "/ui/enter": () => [200, { addPasskey: false }] };
  }, async (person, hub) => {
    await person.page.goto(`${path}#${kind}.abcdefghijklmnop`);
    if (kind === "setup") {
      await person.page.getByRole("textbox", { name: /Your name/ }).fill("ops");
      assert.equal(new URL(person.page.url()).hash, "");
      await person.page.getByRole("button", { name: "Set up" }).click();
    }
    await until("the code is sent", async () => hub.entered.length === 1);
    assert.deepEqual(hub.entered[0][0], "/ui/enter");
    assert.equal(hub.entered[0][1].code, `${kind}.abcdefghijklmnop`);
    assert.equal(hub.entered[0][1].person, kind === "setup" ? "ops" : undefined);
    await person.page.getByRole("button", { name: "Sign in with a passkey" }).waitFor();
    assert.equal(new URL(person.page.url()).hash, "");
    const kept = await person.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
    assert.ok(!kept.includes("abcdefghijklmnop"), kept);
  });
}

check("a token is shown once, with the command that it is for", DESKTOP, () => {}, async (person) => {
  await person.page.goto("/settings/tokens");
  const secret = await person.makeToken("tower");
  assert.match(await person.page.locator(".invite .command-line code").innerText(), new RegExp(`^ROPEWALK_BRIDGE_TOKEN=${secret} ropewalk up --bridge http://localhost:\\d+$`));
  await person.page.getByRole("button", { name: "Done" }).click();
  assert.ok(!(await person.page.content()).includes(secret));
});

check("names of machines, people, sessions, folders, tokens and links are inert", DESKTOP, (hub) => {
  const cases = injectionCases("titles");
  const name = (index) => cases[index % cases.length].slice(0, 300);
  hub.machines = cases.map((_, index) => ({ ...hub.machines[0], id: `m-${index}`, name: name(index), version: name(index), here: index % 2 === 0, sessions: [`s-${index}`] }));
  const [card] = hub.cards;
  hub.cards = cases.map((text, index) => ({ ...card, session: `s-${index}`, title: text.slice(0, 300), folder: `/home/${text.slice(0, 300)}`, line: text.slice(0, 300), asks: index < 5 ? [{ ...card.asks[0], session: `s-${index}`, ask: index, title: text, subject: text, folder: text }] : [] }));
  hub.at.person.name = name(2);
  hub.views = new Map(cases.map((text, index) => [`s-${index}`, { state: { ...hub.views.get(SESSIONS.done).state, title: text, folder: text, others: [text] }, rows: hub.views.get(SESSIONS.done).rows.map((row) => (row.is === "prompt" ? { ...row, from: text, text } : row)) }]));
  const many = (list, make) => cases.map((text, index) => ({ ...list[0], id: `x-${index}`, ...make(text) }));
  hub.answers.tokens.tokens = many(hub.answers.tokens.tokens, (text) => ({ name: text }));
  hub.answers.passkeys.passkeys = many(hub.answers.passkeys.passkeys, (text) => ({ name: text }));
  hub.answers.people.people = many(hub.answers.people.people, (text) => ({ name: text }));
  hub.answers.devices.devices = many(hub.answers.devices.devices, (text) => ({ name: text }));
  hub.answers.shares.shares = many(hub.answers.shares.shares, (text) => ({ role: text }));
  hub.answers.at = ({ request }) => (request.do === "open" ? { is: "opened", session: "s-0" } : { is: "offer", folder: name(3), settings: [], commands: [] });
}, async (person, hub) => {
  await person.page.goto("/");
  await person.page.getByRole("navigation", { name: "Sessions" }).waitFor();
  await rememberGlobals(person);
  await until("they are listed", async () => (await person.cards().count()) >= hub.cards.length);
  await assertInert(person);
  for (const path of ["/inbox", "/settings", "/s/s-0", "/s/s-1", "/s/s-3"]) {
    await person.goto(path);
    await person.page.getByRole("main").first().waitFor();
    if (path === "/settings") await until("all of it is there", async () => (await person.page.getByRole("button", { name: "Remove" }).count()) >= hub.cards.length);
    if (path.startsWith("/s/")) {
      await person.transcript().getByText("the tests pass").waitFor();
      await person.page.getByRole("tab", { name: "Details" }).click();
    }
    await assertInert(person);
  }
  await person.openShares();
  await until("links are listed", async () => (await person.page.getByRole("dialog").getByRole("button", { name: "Revoke" }).count()) >= hub.cards.length);
  await assertInert(person);
});

check("words of a hub that refuses are inert", PHONE, (hub) => {
  signedOut(hub);
  const markup = `<img src=x onerror=xss=1><script>xss=1</script>`;
  hub.posts = { "/ui/enter": () => [403, { error: markup, message: markup }] };
}, async (person) => {
  await person.page.goto("/login");
  await rememberGlobals(person);
  await person.page.goto("/login#join.abcdefghijklmnop");
  await person.page.getByRole("alert").waitFor();
  await assertInert(person);
});
