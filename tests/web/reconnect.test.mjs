// The line between page and server: cut, killed, gone. No gap, nothing twice, nothing lost.

import assert from "node:assert/strict";
import { check, checkEverywhere, DESKTOP, PHONE, until } from "./harness.mjs";

checkEverywhere("a server that is killed and comes back leaves no gap and nothing twice", async (fixture, size) => {
  const person = await fixture.owner(size);
  const session = await person.open("read README.md");
  await person.hears("A small library of knots");
  await person.idle();
  await person.composer().fill("what I was about to say");
  const before = await person.rows();
  await fixture.server.kill();
  await person.saysItIsAway();
  assert.deepEqual(await person.rows(), before, "the last state stays on the screen");
  await fixture.server.run();
  await person.live();
  assert.equal(await person.composer().inputValue(), "what I was about to say");
  assert.deepEqual(await person.rows(), before);
  await person.composer().fill("");
  await person.send("read src/lib.rs");
  await person.hears("pub use knot");
  await person.idle();
  const after = await person.rows();
  const fresh = await fixture.owner(size);
  await fresh.goto(`/s/${session}`);
  await fresh.hears("pub use knot");
  assert.deepEqual(await fresh.rows(), after, "somebody who comes later sees the same");
});

check("a turn that was cut by the server's death is shown as interrupted", async (fixture) => {
  const person = await fixture.owner(DESKTOP);
  await person.open("sleep 60000");
  await until("the turn runs", () => person.working());
  await fixture.server.kill();
  await person.saysItIsAway();
  await fixture.server.run();
  await person.live();
  await person.idle();
  assert.match(await person.transcript().innerText(), /interrupted|ended with it|stopped/i);
});

checkEverywhere("a prompt that is sent while the server is away is done once when it is back", { args: ["--approval", "full"] }, async (fixture, size) => {
  const person = await fixture.owner(size);
  await person.open("hello");
  await person.idle();
  await fixture.server.kill();
  await person.saysItIsAway();
  await person.send("run echo again >> count.txt");
  await fixture.server.run();
  await person.live();
  await until("it was done", () => fixture.server.read("count.txt").length > 0);
  await person.idle();
  await person.page.reload();
  await person.live();
  await person.send("hello again");
  await person.idle();
  assert.equal(fixture.server.read("count.txt"), "again\n");
  const prompts = (await person.rows()).filter(({ text }) => text.includes("echo again >> count.txt") && text.length < 200);
  assert.equal(new Set(prompts.map(({ id }) => id)).size, prompts.length);
});

checkEverywhere("a reload without a server shows the last state and says that it is old", async (fixture, size) => {
  const person = await fixture.owner(size);
  const session = await person.open("read README.md");
  await person.hears("A small library of knots");
  await person.idle();
  await person.serviceWorker();
  await until("the state is kept", () => person.page.evaluate(() => JSON.stringify(localStorage).includes("A small library of knots")));
  await fixture.server.kill();
  await person.page.goto(`/s/${session}`);
  await person.saysItIsAway();
  await person.hears("A small library of knots");
  await fixture.server.run();
  await person.live();
});

check("a line that is cut in the middle of a stream is taken up where it was", { scripted: true }, async (fixture) => {
  fixture.model.says({ chunks: { count: 600, perSecond: 200, text: (index) => `word${index} ` } });
  const person = await fixture.owner(PHONE);
  // A browser that is told to be offline opens nothing new, and leaves what is open: the line is cut by hand.
  await person.context.addInitScript(() => {
    globalThis.WebSocket = class extends WebSocket {
      constructor(...given) {
        super(...given);
        globalThis.cutLine = () => this.close();
      }
    };
  });
  await person.page.reload();
  await person.live();
  await person.open("count");
  await person.hears("word50 ");
  await person.context.setOffline(true);
  await person.page.evaluate(() => globalThis.cutLine());
  await until("the page knows", () => person.away());
  await person.context.setOffline(false);
  await person.live();
  await person.hears("word599");
  await person.idle();
  const text = await person.transcript().innerText();
  const words = [...text.matchAll(/word(\d+)/g)].map((match) => Number(match[1]));
  assert.deepEqual(words, Array.from({ length: 600 }, (_, index) => index));
});
