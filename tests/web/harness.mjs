// How a test of the web app is written: a function of a fixture (`fixture.mjs`), on one device or on each.

import { after, test } from "node:test";
import { SIZES, Fixture, closeBrowser } from "./fixture.mjs";

export * from "./fixture.mjs";

const TEST_MS = 180_000;

after(closeBrowser);

/** A test on a fixture of its own. */
export function check(name, options, body) {
  if (body === undefined) return check(name, {}, options);
  test(name, { timeout: TEST_MS }, async () => {
    const fixture = await Fixture.begin(options);
    try {
      await body(fixture);
      await fixture.judge();
    } catch (error) {
      await fixture.record(name);
      throw error;
    } finally {
      await fixture.end();
    }
  });
}

/** The same test on a phone and on a desktop. */
export function checkEverywhere(name, options, body) {
  if (body === undefined) return checkEverywhere(name, {}, options);
  for (const size of SIZES) check(`${name} (${size.name})`, options, (fixture) => body(fixture, size));
}
