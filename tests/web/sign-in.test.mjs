// How people come in and go out again: links, pairing with words, roles, devices that are sent away.

import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { check, checkEverywhere, DESKTOP, PHONE, until } from "./harness.mjs";

checkEverywhere("a login link works once, and leaves nothing in the address", async (fixture, size) => {
  const link = await fixture.server.link();
  const person = await fixture.person(size);
  await person.enter(link);
  assert.equal(new URL(person.page.url()).hash, "");
  await person.live();
  const [cookie] = await person.context.cookies(`${fixture.server.url}/ui/socket`);
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
  assert.equal(await person.page.evaluate(() => document.cookie), "");
  await person.page.reload();
  await person.live();
  const stranger = await fixture.person(size);
  await stranger.page.goto(link);
  await stranger.page.getByText("This code has already been used").waitFor();
  await stranger.page.goto("/");
  await stranger.page.getByRole("heading", { name: "You are signed out" }).waitFor();
});

check("a phone is let in when the words on both screens are the same", async (fixture) => {
  const owner = await fixture.owner(DESKTOP);
  const phone = await fixture.person(PHONE);
  const words = await pair(fixture, owner, phone, { role: "driver" });
  assert.match(words, /^\p{L}+ \p{L}+$/u);
  await phone.live();
  await phone.open("read README.md");
  await phone.hears("A small library of knots");
});

check("a code can be typed, and one that is refused says so", async (fixture) => {
  const owner = await fixture.owner(DESKTOP);
  const { code } = await owner.invite("viewer");
  const phone = await fixture.person(PHONE);
  await phone.page.goto("/pair");
  await phone.typeCode(code);
  await owner.knock().waitFor();
  await owner.refuse();
  await phone.page.getByText("This device was rejected").waitFor();
});

check("a wrong code is told as such", async (fixture) => {
  const phone = await fixture.person(PHONE);
  await phone.page.goto("/pair#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
  await phone.knockOnDoor();
  await phone.page.getByText("This code is not valid here").waitFor();
});

check("a viewer reads along and can do nothing else, whatever its page sends", { args: ["--approval", "strict"] }, async (fixture) => {
  const owner = await fixture.owner(DESKTOP);
  const session = await owner.open("run echo x > made.txt");
  await owner.ask().waitFor();
  const viewer = await fixture.person(PHONE);
  await pair(fixture, owner, viewer, { role: "viewer" });
  await viewer.goto(`/s/${session}`);
  await viewer.hears("run echo x > made.txt");
  assert.equal(await viewer.composer().count(), 0, "there is nothing to write in");
  assert.equal(await viewer.page.getByRole("button", { name: /^allow/i }).count(), 0, "there is nothing to allow");
  const { asks } = await viewer.state(session);
  const replies = await viewer.raw(
    { do: "prompt", session, key: "k1", text: "run echo y > made.txt", pictures: [] },
    { do: "answer", session, ask: asks[0].ask, decision: "allowOnce", text: null },
    { do: "set", session, setting: "mode", value: "ask" },
    { do: "invite", role: "owner" },
    { do: "devices" },
    { do: "cancel", session, turn: null },
    { do: "delete", session },
  );
  assert.deepEqual(replies.map(({ error }) => error?.code), Array(7).fill("forbidden"));
  assert.throws(() => fixture.server.read("made.txt"), /ENOENT/);
});

check("an approver answers and does not prompt", { args: ["--approval", "strict"] }, async (fixture) => {
  const owner = await fixture.owner(DESKTOP);
  const session = await owner.open("run echo x > made.txt");
  await owner.ask().waitFor();
  const approver = await fixture.person(PHONE);
  await pair(fixture, owner, approver, { role: "approver" });
  await approver.goto(`/s/${session}`);
  await approver.ask().waitFor();
  const [reply] = await approver.raw({ do: "prompt", session, key: "k1", text: "hello", pictures: [] });
  assert.equal(reply.error?.code, "forbidden");
  await approver.allow();
  await approver.idle();
  assert.equal(fixture.server.read("made.txt"), "x\n");
});

check("a device that is revoked is out at once", async (fixture) => {
  const owner = await fixture.owner(DESKTOP);
  const phone = await fixture.person(PHONE);
  await pair(fixture, owner, phone, { role: "driver" });
  const session = await owner.open("hello");
  await owner.idle();
  await phone.goto(`/s/${session}`);
  await phone.live();
  await owner.revoke(/pixel|android|phone/i);
  await phone.page.getByRole("heading", { name: "You are signed out" }).waitFor();
  await phone.page.reload();
  await phone.page.getByRole("heading", { name: "You are signed out" }).waitFor();
  await until("its cookie opens nothing", async () => (await phone.page.request.get("/ui/socket")).status() >= 400);
});

check("a program on another port is sent the cookie, and can do nothing with it", async (fixture) => {
  const owner = await fixture.owner(DESKTOP);
  let stolen;
  const thief = createServer((asked, answer) => {
    stolen ??= asked.headers.cookie;
    answer.setHeader("content-type", "text/html");
    answer.end("<title>hello</title>");
  });
  await new Promise((ready) => thief.listen(0, "127.0.0.1", ready));
  try {
    const page = await owner.context.newPage();
    await page.goto(`http://127.0.0.1:${thief.address().port}/ui/x`);
    assert.match(stolen, /^ropewalk-\d+=/, "browsers do not look at the port");
    assert.equal(await page.evaluate(() => localStorage.length), 0);
    await page.close();
  } finally {
    await new Promise((closed) => thief.close(closed));
  }
  owner.refused = [];
  const forged = (path, method, body, more = {}) =>
    new Promise((done, fail) => {
      const headers = { cookie: stolen, origin: fixture.server.url, "content-type": "application/json", ...more };
      const asked = request(`${fixture.server.url}${path}`, { method, headers }, (answer) => done(answer.resume().statusCode));
      asked.on("error", fail).on("upgrade", (answer, socket) => { socket.destroy(); done(101); });
      asked.end(body);
    });
  const socket = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-protocol": "ropewalk.v1" };
  assert.equal(await forged("/ui/hall", "POST", JSON.stringify({ do: "invite", role: "owner" })), 401);
  assert.equal(await forged("/ui/leave", "POST", "{}"), 401);
  assert.equal(await forged("/ui/socket", "GET", undefined), 401);
  assert.equal(await forged("/ui/socket", "GET", undefined, socket), 401);
  await owner.page.reload();
  await owner.live();
});

check("a browser whose stored data is gone is told to sign in again, and a second tab comes back with the first", async (fixture) => {
  const owner = await fixture.owner(DESKTOP);
  const tab = await owner.context.newPage();
  await tab.goto("/");
  await tab.getByRole("navigation", { name: "Sessions" }).waitFor();
  await owner.page.evaluate(() => localStorage.clear());
  for (const page of [owner.page, tab]) {
    await page.reload();
    await page.getByRole("heading", { name: "Sign in again" }).waitFor();
    await page.getByText("ropewalk up").waitFor();
  }
  await owner.enter(await fixture.server.link());
  await owner.live();
  await tab.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
  await tab.close();
});

/** The owner invites, the phone knocks, the words are compared, the phone is let in. Gives the words. */
async function pair(fixture, owner, phone, { role }) {
  const { url } = await owner.invite(role);
  await phone.page.goto(url.replace(/^https?:\/\/[^/]+/, fixture.server.url));
  await phone.knockOnDoor();
  const here = await owner.words();
  const there = await phone.wordsShown();
  assert.equal(here, there, "the words on both screens are the same");
  await owner.admit();
  await phone.page.waitForURL((address) => address.pathname === "/");
  return here;
}
