// Everything on one session: a machine behind a network that cuts and stalls, a hub, a phone and a desktop at the hub, and
// a terminal at the machine. Whoever dies and comes back, all of them end with the same.

import assert from "node:assert/strict";
import { NetworkProxy } from "./network-proxy.mjs";
import { check, DESKTOP, PHONE, until } from "./hub-fixture.mjs";
import { Terminal } from "./terminal.mjs";

const RETURN_MS = 120_000;
const STRICT = ["--approval", "strict"];

/** All who look at one session, what was asked for in it, and everything that was said, in order. */
class Round {
  prompts = [];
  said = [];
  recovered = [];

  static async begin(fixture) {
    const round = new Round();
    round.fixture = fixture;
    round.phone = await fixture.admin(PHONE);
    round.proxy = await NetworkProxy.open(fixture.hub.port);
    fixture.atEnd(() => round.proxy.close());
    round.machine = await fixture.connect(round.phone, "laptop", { args: STRICT, env: round.proxy.environment() });
    assert.ok(round.proxy.carried > 0, "the machine's way to the hub leads through the proxy");
    return round;
  }

  /** The phone begins the session, and the others come to it. */
  async gather(prompt, answer) {
    this.fixture.model.says({ text: answer });
    this.session = await this.phone.open(prompt);
    this.prompts.push(prompt);
    this.said.push(prompt, answer);
    this.desktop = await this.fixture.adminAgain(DESKTOP);
    await this.desktop.goto(`/s/${this.session}`);
    this.browsers = [this.phone, this.desktop];
    this.terminal = Terminal.open(this.machine, ["attach", this.session]);
    this.fixture.atEnd(() => this.terminal.close());
    await this.everybodyHears(answer);
  }

  async prompted(text, by = (text) => this.phone.send(text)) {
    this.prompts.push(text);
    this.said.push(text);
    await by(text);
  }

  /** A prompt, and an answer that everybody hears. */
  async turn(prompt, answer, by) {
    this.fixture.model.says({ text: answer });
    await this.prompted(prompt, by);
    this.said.push(answer);
    await this.everybodyHears(answer);
  }

  async everybodyHears(text) {
    for (const person of this.browsers) await person.hears(text, RETURN_MS);
    await this.terminal.shows(text);
  }

  async everybodyIsAsked() {
    for (const person of this.browsers) await person.ask().waitFor();
    await this.terminal.until("the terminal asks", (screen) => this.terminal.asks(screen));
  }

  async nobodyIsAsked() {
    for (const person of this.browsers) await person.ask().waitFor({ state: "detached" });
    await this.terminal.until("the terminal asks nothing", (screen) => !this.terminal.asks(screen));
  }

  /** A command is asked for, by a prompt from the phone; `answer` is how it is allowed. */
  async asked(file, answer) {
    const after = `${file} is made.`;
    this.fixture.model.says({ call: ["shell", { command: `echo knot > ${file}` }] });
    this.fixture.model.says({ text: after });
    await this.prompted(`make ${file}`);
    await this.everybodyIsAsked();
    assert.throws(() => this.machine.read(file), /ENOENT/, "nothing is done before it is allowed");
    await answer();
    await this.nobodyIsAsked();
    await this.everybodyHears(after);
    assert.equal(this.machine.read(file), "knot\n");
    this.said.push(after);
  }

  /** An answer of the model in two halves, and what happens between them; that is what lets the model go on. */
  async between(prompt, [first, second], happens) {
    let goOn;
    this.fixture.model.says({ text: `${first} ` }, { wait: new Promise((go) => (goOn = go)) }, { text: second });
    await this.prompted(prompt);
    this.said.push(first);
    await this.everybodyHears(first);
    await happens(goOn);
  }

  /** How long it takes from now until something is so. */
  async recovers(what, is) {
    const began = performance.now();
    await is();
    this.recovered.push(`${what} ${((performance.now() - began) / 1000).toFixed(1)} s`);
  }

  async machineIsBack() {
    for (const person of this.browsers) await person.awayBar().waitFor({ state: "detached", timeout: RETURN_MS });
  }

  /** Everybody shows what was said, and the same; what the hub keeps is what the machine keeps. */
  async judge() {
    for (const person of this.browsers) await person.idle();
    await this.terminal.shows("Ready");
    const log = await this.machine.events(this.session);
    await until("the mirror comes to its end", () => this.fixture.hub.mirror(this.session).length >= log.length, RETURN_MS);
    assert.deepEqual(this.fixture.hub.mirror(this.session), log, "the mirror is the log");
    const fresh = await this.fixture.adminAgain(DESKTOP);
    await fresh.goto(`/s/${this.session}`);
    await fresh.hears(this.said.at(-1));
    const rows = await fresh.rows();
    for (const person of this.browsers) await until("a browser shows what somebody sees who comes now", async () => {
      assert.deepEqual(await person.rows(), rows);
      return true;
    });
    inOrder(this.said, rows.map(({ text }) => text).join("\n"));
    inOrder(this.said, this.terminal.screen());
    const prompts = log.filter(({ event_type }) => event_type === "user_message").map(({ payload }) => payload.content[0].text);
    assert.deepEqual(prompts, this.prompts, "everything that was asked for is in the log, once and in order");
  }
}

/** Each text stands after the one before it. */
function inOrder(texts, whole) {
  let place = 0;
  for (const text of texts) {
    const found = whole.indexOf(text, place);
    assert.ok(found >= 0, `"${text}" is missing, or stands in the wrong place:\n${whole}`);
    place = found + text.length;
  }
}

check("one session on a phone, a desktop and a terminal outlives cuts, stalls, the machine's death and the hub's", async (fixture) => {
  const round = await Round.begin(fixture);
  const { phone, machine, proxy } = round;
  await round.gather("which knots are there?", "There are bends and hitches.");
  const { desktop, terminal } = round;

  await round.asked("from-phone.txt", () => phone.allow());
  await round.asked("from-terminal.txt", () => terminal.answer("y"));

  await round.between("tell me of bends", ["A bend joins two ropes.", "That was all of bends."], async (goOn) => {
    proxy.cut();
    goOn();
    await terminal.shows("That was all of bends.");
    await round.recovers("a cut", () => round.everybodyHears("That was all of bends."));
    round.said.push("That was all of bends.");
  });

  await round.between("tell me of hitches", ["A hitch holds a rope to a post.", "That was all of hitches."], async (goOn) => {
    proxy.stall(true);
    goOn();
    await terminal.shows("That was all of hitches.");
    round.said.push("That was all of hitches.");
    fixture.model.says({ text: "At sea they hold as well." });
    await round.prompted("and at sea?", (text) => terminal.say(text));
    await terminal.shows("At sea they hold as well.");
    round.said.push("At sea they hold as well.");
    for (const person of round.browsers) assert.doesNotMatch(await person.transcript().innerText(), /all of hitches|at sea/i, "nothing moves");
    proxy.stall(false);
    await round.recovers("a stall", () => round.everybodyHears("At sea they hold as well."));
  });

  await round.between("tell me of splices", ["A splice is woven,", "and nobody hears of this."], async (goOn) => {
    await machine.kill();
    goOn();
    for (const person of round.browsers) await person.awayBar().filter({ hasText: /has been offline since/ }).waitFor({ timeout: RETURN_MS });
    await terminal.shows("Reconnecting");
    await round.recovers("the machine's death", async () => {
      await machine.run();
      await round.machineIsBack();
      for (const person of round.browsers) await until("the turn is over", async () => !(await person.working()), RETURN_MS);
      await terminal.shows("Ready");
    });
  });
  await round.turn("go on without splices", "Splices can wait.");

  await round.between("tell me of whippings", ["A whipping binds an end.", "That was all of whippings."], async (goOn) => {
    await fixture.hub.kill();
    for (const person of round.browsers) await person.saysItIsAway();
    goOn();
    await terminal.shows("That was all of whippings.");
    await round.recovers("the hub's death", async () => {
      await fixture.hub.run();
      await round.everybodyHears("That was all of whippings.");
      await round.machineIsBack();
    });
    round.said.push("That was all of whippings.");
  });
  await round.turn("thank you", "You are welcome.", (text) => desktop.send(text));

  await round.judge();
  console.log(`everybody shows the same again after: ${round.recovered.join(", ")}`);
});

check("the terminal beside a bridge is one more surface: what is answered there is withdrawn at the hub, and the reverse", async (fixture) => {
  const phone = await fixture.admin(PHONE);
  const machine = await fixture.connect(phone, "laptop");
  await machine.end();
  const terminal = Terminal.open(machine, ["bridge", "--remote-url", fixture.hub.url, "--insecure", ...STRICT]);
  fixture.atEnd(() => terminal.close());
  await terminal.shows("What should the agent do?");
  const asks = (file) => {
    fixture.model.says({ call: ["shell", { command: `echo knot > ${file}` }] });
    fixture.model.says({ text: `${file} is made.` });
  };

  asks("allowed-at-the-hub.txt");
  terminal.say("make a file, the hub may answer");
  await terminal.until("the terminal asks", (screen) => terminal.asks(screen));
  await phone.home();
  await phone.cards().first().click();
  await phone.ask().waitFor();
  await until("it can be answered", () => phone.allowButton().isEnabled());
  await phone.allow();
  await terminal.until("it is withdrawn in the terminal", (screen) => !terminal.asks(screen) && screen.includes("allowed by ops (bridge)"));
  await terminal.shows("allowed-at-the-hub.txt is made.");
  await phone.hears("allowed-at-the-hub.txt is made.");
  assert.equal(machine.read("allowed-at-the-hub.txt"), "knot\n");

  asks("allowed-in-the-terminal.txt");
  await phone.send("make another, the terminal may answer");
  await phone.ask().waitFor();
  await terminal.until("the terminal asks", (screen) => terminal.asks(screen));
  await terminal.answer("y");
  await phone.ask().waitFor({ state: "detached" });
  await phone.hears("allowed-in-the-terminal.txt is made.");
  await terminal.shows("allowed-in-the-terminal.txt is made.");
  assert.equal(machine.read("allowed-in-the-terminal.txt"), "knot\n");
  await phone.idle();
  const said = ["make a file, the hub may answer", "allowed-at-the-hub.txt is made.", "make another, the terminal may answer", "allowed-in-the-terminal.txt is made."];
  inOrder(said, terminal.screen());
  inOrder(said, (await phone.rows()).map(({ text }) => text).join("\n"));
  terminal.keys("C-d");
  await terminal.shows("ended with 0");
});
