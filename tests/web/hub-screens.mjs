// The screens that only a hub has, on a scripted one: for axe, for the pictures, and for those who look at them.

import { User } from "./app.mjs";
import { SESSIONS, stage } from "./hub-stage.mjs";
import { browser } from "./scene.mjs";
import { ScriptedHub } from "./scripted-hub.mjs";

const VAULT = { id: "m-vault", name: "vault", version: "0.1.0", sealed: true, own: true, here: true, sessions: [SESSIONS.sealed] };

/** A hub of one's own, and somebody before it. Whoever began it ends it. */
export async function visit(size, { theme = "light", script = () => {} } = {}) {
  const hub = await ScriptedHub.start(stage());
  script(hub);
  const person = await User.arrive(await browser(), hub, size, { theme });
  await hub.attend(person);
  const end = async () => {
    await person.leave();
    await hub.stop();
  };
  return { hub, person, end };
}

/** Came by a link to one session. */
export function asGuest(hub, role = "viewer") {
  hub.role = role;
  hub.at = { person: null, session: SESSIONS.done, until: Date.now() + 24 * 60 * 60_000 };
  hub.machines = [{ ...hub.machines[0], own: false, sessions: [SESSIONS.done] }];
  hub.cards = hub.cards.filter(({ session }) => session === SESSIONS.done);
}

export function signedOut(hub) {
  hub.welcome = false;
}

function sealed(hub) {
  hub.machines = [...hub.machines, { ...VAULT, seenAt: Date.now() }];
  hub.after = [{ on: "sealedCard", session: SESSIONS.sealed, machine: VAULT.id, state: "working", asks: [], updatedAt: Date.now(), sealed: "AQAA" }];
}

const at = (path, text) => async ({ page }) => {
  await page.goto(path);
  await page.getByText(text).first().waitFor();
};

export const HUB_SCREENS = [
  { name: "sessions", show: at("/", "Index the photographs") },
  { name: "empty", script: (hub) => Object.assign(hub, { machines: [], cards: [] }), show: at("/", "No machine is connected") },
  { name: "inbox", show: at("/inbox", "1 waiting for you") },
  { name: "new", show: at("/new", "/home/me/knots") },
  { name: "session", show: at(`/s/${SESSIONS.done}`, "the tests pass") },
  { name: "away", show: at(`/s/${SESSIONS.away}`, "is away since") },
  { name: "guest", script: asGuest, show: at("/", "You are here by a link") },
  { name: "sealed", script: sealed, show: at(`/s/${SESSIONS.sealed}`, "Sealed: pair this device") },
  { name: "pair", show: at(`/pair#m-vault.${"a".repeat(22)}.${"b".repeat(22)}`, "Pair this device") },
  { name: "share", show: async (person) => {
    await at(`/s/${SESSIONS.done}`, "the tests pass")(person);
    await person.openShares();
    await person.page.getByText("Links to this session").waitFor();
  } },
  { name: "shared", show: async (person) => {
    await at(`/s/${SESSIONS.done}`, "the tests pass")(person);
    await person.share("approver", "7 days");
  } },
  { name: "machines", show: at("/settings/machines", "Where your agents run") },
  { name: "token", show: async (person) => {
    await person.page.goto("/settings/tokens");
    await person.makeToken("tower");
  } },
  { name: "people", show: at("/settings/people", "Admins invite and remove") },
  { name: "signin", script: signedOut, show: at("/", "Sign in with a passkey") },
  { name: "setup", script: signedOut, show: at("/login#setup.abcdefghijklmnop", "Set up this hub") },
  { name: "joined", script: (hub) => {
    signedOut(hub);
    hub.posts = { "/ui/enter": () => [200, { addPasskey: true }] };
  }, show: at("/login#join.abcdefghijklmnop", "You are in") },
  { name: "ended", script: (hub) => {
    signedOut(hub);
    hub.posts = { "/ui/enter": () => [410, { error: "code_expired", message: "this link has ended; ask the person who sent it for a new one" }] };
  }, show: at("/s/x#share.abcdefghijklmnop", "This link has ended") },
];
