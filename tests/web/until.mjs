// Waiting for a state, never for a while.

import assert from "node:assert/strict";

/** No wait is longer. Generous, because test machines are busy. */
const DEADLINE_MS = 20_000;

/** Waits until a condition holds, looking again and again; fails with what was seen last. */
export async function until(what, condition, deadlineMs = DEADLINE_MS) {
  const end = Date.now() + deadlineMs;
  let last;
  for (;;) {
    try {
      last = await condition();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) assert.fail(`${what}: not within ${deadlineMs} ms; last: ${last?.stack ?? last}`);
    await new Promise((wake) => setTimeout(wake, 25));
  }
}
