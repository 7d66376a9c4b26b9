// What a scripted hub has on its machines, for the screens and their pictures.

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

export const SESSIONS = { asking: "s-asking", working: "s-working", done: "s-done", away: "s-away", sealed: "s-sealed" };

/** Machines, sessions and everything that settings list. `now` is the hub's clock. */
export function hubData(now = Date.now()) {
  const ask = {
    session: SESSIONS.asking, ask: 7, at: now - MINUTE, row: null, tool: "shell", title: "ls src", kind: "execute", risk: "low", reason: "it only looks",
    subject: "ls src", folder: "/home/me/knots", input: "{\"command\":\"ls src\"}", diffs: [], text: "", more: 0, question: null,
  };
  const card = (session, title, state, ago, line, more = {}) => ({
    session, title, folder: "/home/me/knots", source: "web", createdAt: now - DAY, updatedAt: now - ago, state, line, costUsd: 0.12, asks: [], ...more,
  });
  const machine = (id, name, sessions, more = {}) => ({ id, name, version: "0.1.0", sealed: false, own: true, here: true, seenAt: now, sessions, ...more });
  const state = (title, more = {}) => ({
    title, folder: "/home/me/knots", busy: false, turn: null, turnAt: null, queue: [], asks: [], plan: null, settings: [], commands: [],
    contextUsed: 4200, contextSize: 200_000, costUsd: 0.12, unpriced: false, compacting: false, others: [], ...more,
  });
  const row = (id, what) => ({ id, rev: id, at: now - 20 * MINUTE + id * MINUTE, turn: 1, under: null, ...what });
  const before = (minutes, list) => list.map((one) => ({ ...one, at: one.at - minutes * MINUTE }));
  const rows = [
    row(1, { is: "prompt", from: "dev (bridge)", text: "Spell out the numbers in the notes.", more: 0, attached: [] }),
    row(2, { is: "said", text: "Lines **3** and **36** have numbers as digits. I changed both, and the tests pass.", more: 0 }),
    row(3, { is: "ended", stop: "endTurn", error: null, elapsedMs: 48_000, tools: 4, files: 1, costUsd: 0.12 }),
  ];
  const away = [
    row(1, { is: "prompt", from: "dev (bridge)", text: "Go on with the index.", more: 0, attached: [] }),
    row(2, { is: "said", text: "4,200 of 61,000 are read. The others follow, newest first.", more: 0 }),
  ];
  return {
    machines: [
      machine("m-laptop", "laptop", [SESSIONS.asking, SESSIONS.done]),
      machine("m-tower", "tower", [SESSIONS.working]),
      machine("m-attic", "attic", [SESSIONS.away], { here: false, seenAt: now - 134 * MINUTE }),
    ],
    cards: [
      card(SESSIONS.asking, "Look around", "waiting", MINUTE, null, { asks: [ask] }),
      card(SESSIONS.working, "Port the parser", "working", 2 * MINUTE, "I run the tests once more.", { folder: "/home/me/parser" }),
      card(SESSIONS.done, "Spell out the numbers", "done", 11 * MINUTE, "Lines **3** and **36** have numbers as digits."),
      card(SESSIONS.away, "Index the photographs", "working", 134 * MINUTE, "4,200 of 61,000 are read.", { folder: "/home/me/photographs" }),
    ],
    views: new Map([
      [SESSIONS.done, { rows, state: state("Spell out the numbers") }],
      [SESSIONS.away, { rows: before(130, away), earlier: true, state: state("Index the photographs", { busy: true, turn: 1, turnAt: now - 140 * MINUTE }) }],
      [SESSIONS.asking, { rows: rows.slice(0, 1), state: state("Look around", { busy: true, turn: 1, turnAt: now - 2 * MINUTE, asks: [ask] }) }],
      [SESSIONS.working, { rows: rows.slice(0, 1), state: state("Port the parser", { busy: true, turn: 1, turnAt: now - 2 * MINUTE }) }],
    ]),
    answers: {
      devices: {
        is: "devices", knocks: [],
        devices: [
          { id: "d1", name: "Chrome on Linux", role: "owner", createdAt: now - DAY, seenAt: now, push: false, mutedUntil: null },
          { id: "d2", name: "Safari on iPhone", role: "owner", createdAt: now - DAY, seenAt: now - 3 * MINUTE, push: true, mutedUntil: null },
        ],
      },
      tokens: { is: "tokens", tokens: [{ id: "t1", name: "laptop", createdAt: now - DAY, until: null, usedAt: now - MINUTE }, { id: "t2", name: "attic", createdAt: now - 3 * DAY, until: now + DAY, usedAt: null }] },
      makeToken: ({ name, until }) => ({ is: "token", secret: "c0ffee".repeat(10) + "0123", token: { id: "t3", name, createdAt: now, until, usedAt: null } }),
      passkeys: { is: "passkeys", passkeys: [{ id: "k1", name: "Chrome on Linux", createdAt: now - DAY, usedAt: now - MINUTE }] },
      people: { is: "people", people: [{ id: "p1", name: "dev", admin: true, createdAt: now - DAY, seenAt: now, passkeys: 1 }, { id: "p2", name: "ops", admin: false, createdAt: now - DAY, seenAt: null, passkeys: 0 }] },
      invitePerson: { is: "invitedPerson", url: "https://hub.example.org/login#join.abcdefghijklmnop", expiresAt: now + 7 * DAY },
      shares: { is: "shares", shares: [{ id: "h1", session: SESSIONS.done, role: "approver", createdAt: now - 50 * MINUTE, until: now + DAY, uses: 2 }] },
      share: ({ session, role, until }) => ({ is: "shared", url: `https://hub.example.org/s/${session}#share.abcdefghijklmnop`, share: { id: "h2", session, role, createdAt: now, until, uses: 0 } }),
      at: ({ request }) => (request.do === "open" ? { is: "opened", session: SESSIONS.done } : { is: "offer", folder: "/home/me/knots", settings: [], commands: [] }),
      changes: { is: "changes", files: [] },
      prompt: { is: "taken", turn: 2 },
    },
  };
}
