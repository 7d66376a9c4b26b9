// Pushes: from a tap in the settings to a notification on a locked phone that opens the very card.
//
// A browser without a network cannot subscribe anywhere, so the page's `PushManager` is given a subscription
// at a service of ours. What the server posts there is decrypted and its signature checked by that service; the
// payload is then handed to the app's own service worker by the browser's debugging protocol.

import assert from "node:assert/strict";
import { check, DESKTOP, PHONE, until } from "./harness.mjs";
import { start } from "./push-service.mjs";

const STRICT = { args: ["--approval", "strict"], env: { ROPEWALK_PUSH_LOOPBACK: "1" } };

check("an ask reaches a phone that nobody looks at, says nothing of what it is about, and opens its card", STRICT, async (fixture) => {
  const service = await start();
  fixture.atEnd(() => service.close());
  const phone = await subscribed(fixture, service);
  const desk = await fixture.owner(DESKTOP);

  await lookAway(phone);
  const session = await desk.open("run echo secret-word > made.txt");
  await desk.ask().waitFor();
  const { asks } = await desk.state(session);
  const push = await service.next();
  assert.equal(push.wrong, null);
  assert.deepEqual(push.payload, { v: 1, kind: "ask", session, ask: asks[0].ask });
  assert.equal(push.urgency, "high");

  const worker = await deliver(phone, push.payload);
  const [shown, ...more] = await notifications(phone);
  assert.ok(shown && more.length === 0, `${more.length}`);
  assert.ok(!/echo|secret-word|made\.txt|knots/.test(JSON.stringify(shown)), JSON.stringify(shown));

  await tap(worker, shown.tag);
  await phone.page.waitForURL(new RegExp(`/s/${session}/ask/${asks[0].ask}$`));
  await phone.ask().waitFor();
  await phone.allow();
  await desk.idle();
  assert.equal(fixture.server.read("made.txt"), "secret-word\n");
});

check("an answer elsewhere takes the notification away", STRICT, async (fixture) => {
  const service = await start();
  fixture.atEnd(() => service.close());
  const phone = await subscribed(fixture, service);
  const desk = await fixture.owner(DESKTOP);
  await lookAway(phone);
  const session = await desk.open("run ls");
  await desk.ask().waitFor();
  const told = await service.next();
  await deliver(phone, told.payload);
  assert.equal((await notifications(phone)).length, 1);
  await desk.allow();
  const cleared = await service.next();
  assert.deepEqual(cleared.payload, { ...told.payload, kind: "clear" });
  assert.equal(cleared.payload.session, session);
  await deliver(phone, cleared.payload);
  assert.deepEqual(await notifications(phone), []);
});

check("a phone that looks, and one that is muted, are not told", STRICT, async (fixture) => {
  const service = await start();
  fixture.atEnd(() => service.close());
  const phone = await subscribed(fixture, service);
  const desk = await fixture.owner(DESKTOP);
  await phone.home();
  await phone.page.bringToFront();
  await desk.open("run ls");
  await desk.ask().waitFor();
  await desk.allow();
  await desk.idle();
  const [done] = await phone.raw({ do: "mute", until: Date.now() + 3_600_000 });
  assert.ok(done.ok, JSON.stringify(done));
  await lookAway(phone);
  await desk.home();
  await desk.open("run ls src");
  await desk.ask().waitFor();
  await desk.allow();
  await desk.idle();
  // A test push is sent to a muted device, too, and everything that was sent before it has come before it.
  const [tried] = await desk.raw({ do: "devices" });
  assert.ok(tried.ok);
  assert.deepEqual(service.arrived(), []);
});

/** A phone that has turned notifications on by a tap, with a subscription at our service. */
async function subscribed(fixture, service) {
  const phone = await fixture.person(PHONE, { permissions: ["notifications"] });
  const given = service.subscribe();
  await phone.context.addInitScript((given) => {
    let subscription = null;
    const made = () => ({
      endpoint: given.endpoint,
      options: { userVisibleOnly: true, applicationServerKey: null },
      toJSON: () => ({ endpoint: given.endpoint, keys: { p256dh: given.p256dh, auth: given.auth } }),
      unsubscribe: async () => ((subscription = null), true),
    });
    PushManager.prototype.subscribe = async () => (subscription = made());
    PushManager.prototype.getSubscription = async () => subscription;
  }, given);
  await phone.enter(await fixture.server.link());
  await phone.goto("/settings/notifications");
  await phone.page.getByRole("button", { name: "Turn on" }).click();
  await phone.page.getByText("You are notified when Ropewalk is not on your screen.").waitFor();
  return phone;
}

/** The page is hidden, as on a phone that is locked. */
async function lookAway(person) {
  await person.page.evaluate(() => {
    Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await until("the server knows that nobody looks", () => person.answered.some((request) => request.do === "looking" && !request.visible));
}

/**
 * Hands a payload to the app's service worker, as a push service would, and waits until the worker has done with it:
 * Chromium drops a notification from its list if it is asked for that list while it shows it.
 */
async function deliver(person, payload) {
  const worker = person.context.serviceWorkers()[0] ?? (await person.context.waitForEvent("serviceworker"));
  await worker.evaluate(() => {
    const { told } = self;
    self.delivered = new Promise((resolve, reject) => {
      self.told = (push) => {
        self.told = told;
        const work = told(push);
        work.then(resolve, reject);
        return work;
      };
    });
  });
  const session = await person.context.newCDPSession(person.page);
  const registration = new Promise((found) => {
    session.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
      if (registrations[0]) found(registrations[0].registrationId);
    });
  });
  await session.send("ServiceWorker.enable");
  await session.send("ServiceWorker.deliverPushMessage", {
    origin: person.server.url,
    registrationId: await registration,
    data: JSON.stringify(payload),
  });
  await worker.evaluate(() => self.delivered);
  await session.detach();
  return worker;
}

function notifications(person) {
  return person.page.evaluate(async () => {
    const registration = await navigator.serviceWorker.ready;
    const shown = await registration.getNotifications();
    return shown.map(({ title, body, tag, data }) => ({ title, body, tag, data }));
  });
}

/** A tap on a notification. A browser lets a worker bring a window to the front only for a real tap: this stands in for it. */
async function tap(worker, tag) {
  await worker.evaluate(async (tag) => {
    WindowClient.prototype.focus = async function focus() {
      return this;
    };
    const [notification] = await self.registration.getNotifications({ tag });
    self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
  }, tag);
}
