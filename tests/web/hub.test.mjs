// A hub, machines that are connected to it, and people with browsers: everything that they do together, with the
// built binary on both sides.

import assert from "node:assert/strict";
import { check, DESKTOP, PHONE, until } from "./hub-fixture.mjs";
import { rememberGlobals, assertInert } from "./injection.mjs";

check("the setup link makes the first admin, who comes in again with a passkey", async (fixture) => {
  const link = await fixture.hub.setupLink();
  const person = await fixture.person(PHONE);
  await person.page.goto(link);
  await person.page.getByRole("textbox", { name: /Your name/ }).fill("ops");
  assert.equal(new URL(person.page.url()).hash, "", "the code is in no history");
  await person.page.getByRole("button", { name: "Set up" }).click();
  await person.page.getByRole("button", { name: "Add a passkey" }).click();
  await person.page.getByRole("heading", { name: "No machine is connected" }).waitFor();
  assert.equal(await person.page.evaluate(() => document.cookie), "");
  await person.goto("/settings/devices");
  const browsers = person.page.locator("#settings-devices");
  await browsers.getByRole("button", { name: "Sign out" }).click();
  await browsers.getByRole("button", { name: "Sign out" }).click();
  await person.page.getByRole("button", { name: "Sign in with a passkey" }).click();
  await person.page.getByRole("heading", { name: "No machine is connected" }).waitFor();
  const other = await fixture.person(DESKTOP);
  await other.page.goto(link);
  await other.page.getByRole("textbox", { name: /Your name/ }).fill("somebody");
  await other.page.getByRole("button", { name: "Set up" }).click();
  await other.page.getByRole("alert").getByText(/already been used/).waitFor();
});

check("a turn is driven from the phone: prompted, allowed and read there, done on the machine", async (fixture) => {
  const phone = await fixture.admin(PHONE);
  const machine = await fixture.connect(phone, "laptop", { args: ["--approval", "strict"] });
  fixture.model.title = "Make a file";
  fixture.model.says({ text: "I make it." }, { call: ["shell", { command: "echo allowed > made.txt" }] });
  fixture.model.says({ text: "The file is there." });
  const session = await phone.open("make a file");
  await phone.ask().waitFor();
  assert.match(await phone.ask().innerText(), /echo allowed > made\.txt/);
  assert.throws(() => machine.read("made.txt"), /ENOENT/);
  await until("it can be answered", () => phone.allowButton().isEnabled());
  await phone.allow();
  await phone.hears("The file is there.");
  await phone.idle();
  assert.equal(machine.read("made.txt"), "allowed\n");
  await phone.page.reload();
  await phone.hears("The file is there.");
  await phone.home();
  assert.match(await phone.card(session).innerText(), /Done/);
});

check("a link shows one session to who has no account, until it is taken back", async (fixture) => {
  const owner = await fixture.admin(DESKTOP);
  await fixture.connect(owner, "laptop");
  fixture.model.title = "Shared";
  fixture.model.says({ text: "What can be shared." });
  const session = await owner.open("say something");
  await owner.hears("What can be shared.");
  await owner.idle();
  fixture.model.says({ text: "What is mine alone." });
  await owner.open("say something else");
  await owner.idle();
  await owner.goto(`/s/${session}`);
  const link = await owner.share("viewer", "1 hour");
  const guest = await fixture.person(PHONE);
  await guest.page.goto(link);
  await guest.hears("What can be shared.");
  await guest.page.getByText(/You joined by a link, as viewer, until/).waitFor();
  assert.equal(new URL(guest.page.url()).hash, "");
  assert.equal(await guest.composer().count(), 0);
  const replies = await guest.raw(
    { do: "prompt", session, key: "k", text: "hello", pictures: [] },
    { do: "share", session, role: "driver", until: Date.now() + 60_000 },
    { do: "tokens" },
    { do: "people" },
    { do: "makeToken", name: "mine", until: null },
  );
  assert.ok(replies.every(({ error }) => error), JSON.stringify(replies));
  const { ok } = (await guest.raw({ do: "sessions", before: null, search: null }))[0];
  assert.deepEqual(ok.cards.map((card) => card.session), [session]);
  await owner.page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await owner.page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await guest.page.getByText("The link to this session has expired or was revoked.").waitFor();
  await guest.page.goto(link);
  await guest.page.getByRole("alert").waitFor();
});

check("titles, folders and commands that come over a bridge are inert, for the people of the hub and for guests", async (fixture) => {
  const owner = await fixture.admin(DESKTOP);
  await rememberGlobals(owner);
  const [title, project, command] = ["<script>xss=1</script><svg onload=xss=1>", "<img src=x onerror=xss=1>", `echo '<iframe srcdoc="<script>xss=1<\/script>">'`];
  await fixture.connect(owner, "<b onmouseover=xss=1>laptop", { project, args: ["--approval", "strict"] });
  await assertInert(owner);
  fixture.model.title = title;
  fixture.model.says({ text: "[here](javascript:xss=1) <details open ontoggle=xss=1>" }, { call: ["shell", { command }] });
  fixture.model.says({ text: "That was all." });
  const session = await owner.open("<img src=x onerror=xss=1>");
  await owner.ask().waitFor();
  await assertInert(owner);
  await owner.goto("/inbox");
  await owner.waiting().first().waitFor();
  await assertInert(owner);
  await owner.goto(`/s/${session}`);
  await until("it can be answered", () => owner.allowButton().isEnabled());
  await owner.allow();
  await owner.hears("That was all.");
  await owner.idle();
  await assertInert(owner);
  const link = await owner.share("viewer", "1 hour");
  await owner.home();
  await until("the title is listed", async () => (await owner.card(session).innerText()).includes(title));
  assert.ok((await owner.page.getByRole("main").or(owner.page.getByRole("navigation")).allInnerTexts()).join().includes(project), "and so is the folder");
  await assertInert(owner);
  const guest = await fixture.person(PHONE);
  await guest.page.goto("/login");
  await rememberGlobals(guest);
  await guest.page.goto(link);
  await guest.hears("That was all.");
  await until("the title is shown", async () => (await guest.page.locator("body").innerText()).includes(title));
  await assertInert(guest);
});

check("a machine that is killed is away, and what is written waits until it is back", async (fixture) => {
  const phone = await fixture.admin(PHONE);
  const machine = await fixture.connect(phone, "laptop");
  fixture.model.title = "Going on";
  fixture.model.says({ text: "The first answer." });
  const session = await phone.open("first");
  await phone.hears("The first answer.");
  await phone.idle();
  await machine.kill();
  await phone.awayBar().filter({ hasText: /has been offline since/ }).waitFor({ timeout: 120_000 });
  await phone.composer().fill("second");
  await phone.page.getByRole("button", { name: "Send" }).click();
  await phone.page.locator(".toast.bad").first().waitFor();
  assert.equal(await phone.composer().inputValue(), "second");
  await phone.page.reload();
  await phone.hears("The first answer.");
  assert.equal(await phone.composer().inputValue(), "second", "the draft outlives the page");
  fixture.model.says({ text: "The second answer." });
  await machine.run();
  await phone.awayBar().waitFor({ state: "detached", timeout: 120_000 });
  await phone.page.getByRole("button", { name: "Send" }).click();
  await phone.hears("The second answer.");
  assert.equal(phone.session(), session);
});

check("the hub is killed and started again, and every page goes on where it was", async (fixture) => {
  const owner = await fixture.admin(DESKTOP);
  const machine = await fixture.connect(owner, "laptop");
  fixture.model.says({ text: "Before." });
  await owner.open("first");
  await owner.hears("Before.");
  await owner.idle();
  await fixture.hub.kill();
  await owner.saysItIsAway();
  await fixture.hub.run();
  await owner.live();
  // A bridge comes back after a pause of its own.
  await until("the machine is back", async () => machine.log.match(/bridge connected/g)?.length === 2, 120_000);
  await owner.awayBar().waitFor({ state: "detached", timeout: 120_000 });
  fixture.model.says({ text: "After." });
  await owner.send("second");
  await owner.hears("After.");
});

check("who is invited has machines of their own, and sees nobody else's", async (fixture) => {
  const admin = await fixture.admin(DESKTOP);
  await fixture.connect(admin, "laptop");
  fixture.model.says({ text: "Of the admin." });
  const session = await admin.open("mine");
  await admin.idle();
  await admin.goto("/settings/people");
  await admin.page.getByLabel("Who do you want to invite?").fill("dev");
  await admin.page.locator("#settings-people").getByRole("button", { name: "Create link" }).click();
  const link = await admin.page.getByLabel("Invitation link").inputValue();
  const other = await fixture.person(PHONE);
  await other.page.goto(link);
  await other.page.getByRole("button", { name: "Later" }).click();
  await other.page.getByRole("heading", { name: "No machine is connected" }).waitFor();
  const replies = await other.raw({ do: "watch", session, after: null }, { do: "changes", session }, { do: "people" }, { do: "share", session, role: "viewer", until: Date.now() + 60_000 });
  assert.ok(replies.every(({ error }) => error), JSON.stringify(replies));
  const guessed = await other.raw({ do: "watch", session: "01ARZ3NDEKTSV4RRFFQ69G5FAV", after: null });
  assert.equal(replies[0].error.message.replace(session, "ID"), guessed[0].error.message.replace("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ID"), "whether it exists cannot be told");
  await admin.page.getByRole("listitem").filter({ hasText: "dev" }).getByRole("button", { name: "Remove" }).click();
  await admin.page.getByRole("listitem").filter({ hasText: "dev" }).getByRole("button", { name: "Remove" }).click();
  await other.page.getByRole("button", { name: "Sign in with a passkey" }).waitFor();
});

check("a sealed machine is read by the device that is paired with it, and by nobody else, the hub least of all", async (fixture) => {
  const phone = await fixture.admin(PHONE);
  const machine = await fixture.connect(phone, "vault", { args: ["--e2e"] });
  await until("it is sealed", async () => /sealed: the hub cannot read it/.test(await phone.page.locator("#settings-machines").innerText()));
  const pairing = fixture.hub.pairing(machine);
  await phone.page.goto(await pairing.link());
  await phone.page.getByRole("button", { name: "Pair", exact: true }).click();
  assert.equal(await phone.wordsShown(), (await pairing.words()).trim());
  assert.equal(new URL(phone.page.url()).hash, "", "the secret is in no history");
  await phone.page.getByRole("button", { name: "Go to sessions" }).click();
  await phone.live();
  fixture.model.title = "Marlinspike";
  fixture.model.says({ text: "The answer is bowline." });
  const session = await phone.open("which knot is meant by marlinspike?");
  await phone.hears("The answer is bowline.");
  await phone.idle();
  await phone.page.reload();
  await phone.hears("The answer is bowline.");
  const other = await fixture.adminAgain(DESKTOP);
  await other.card(session).filter({ hasText: "Sealed session" }).waitFor();
  await other.goto(`/s/${session}`);
  await other.page.getByRole("heading", { name: "Sealed: pair this device" }).waitFor();
  assert.ok(!/bowline|marlinspike/i.test(await other.page.content()));
  for (const words of ["bowline", "marlinspike", "Marlinspike"]) assert.ok(!fixture.hub.keeps(words), `the hub keeps "${words}"`);
});
