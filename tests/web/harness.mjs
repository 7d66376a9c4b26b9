// How a test of the web app is written: a function of a scene (`scene.mjs`), on one device or on each.

import { after, test } from "node:test";
import { SIZES, Scene, closeBrowser } from "./scene.mjs";

export * from "./scene.mjs";

const TEST_MS = 60_000;

after(closeBrowser);

/** A test on a scene of its own. */
export function check(name, options, body) {
  if (body === undefined) return check(name, {}, options);
  test(name, { timeout: TEST_MS }, async () => {
    const scene = await Scene.begin(options);
    try {
      await body(scene);
      await scene.judge();
    } catch (error) {
      await scene.record(name);
      throw error;
    } finally {
      await scene.end();
    }
  });
}

/** The same test on a phone and on a desktop. */
export function checkEverywhere(name, options, body) {
  if (body === undefined) return checkEverywhere(name, {}, options);
  for (const size of SIZES) check(`${name} (${size.name})`, options, (scene) => body(scene, size));
}
