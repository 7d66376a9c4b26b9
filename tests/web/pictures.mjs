// `cargo xtask web --pictures`: a picture of every screen, for `docs/images` and for people who look at them.
//
// The same sessions every time, with a model that says the same; only the times on the screen differ.

import { mkdirSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { HUB_SCREENS, visit } from "./hub-screens.mjs";
import { reduced } from "./palette.mjs";
import { SCREENS, stage } from "./screens.mjs";
import { closeBrowser, Fixture, SIZES } from "./fixture.mjs";

const FOLDER = process.env.PICTURES ?? fileURLToPath(new URL("../../docs/images", import.meta.url));
/** Its name is on the pictures. */
const PLACE = path.join(os.tmpdir(), "code");
/** Screens that are shown in the dark too: the others differ by their colours alone. */
const DARK = new Set(["session", "permission", "sessions", "diff"]);
/** Of a hub's screens, those that are in the documentation. */
const HUB = new Set(["sessions", "empty", "away", "guest", "sealed", "pair", "shared", "machines", "token", "people", "signin", "setup", "joined", "new"]);

mkdirSync(FOLDER, { recursive: true });
const only = process.argv.slice(2);
let failed = 0;
for (const size of SIZES) {
  for (const { name, script, show } of HUB_SCREENS.filter(({ name }) => HUB.has(name) && (only.length === 0 || only.includes(`hub-${name}`)))) {
    const { person, end } = await visit(size, { script });
    try {
      await show(person);
      await person.settled();
      writeFileSync(path.join(FOLDER, `hub-${name}-${size.name}.png`), reduced(await person.picture()));
      console.log(`hub-${name}-${size.name}.png`);
    } catch (error) {
      failed += 1;
      console.error(`hub-${name}-${size.name}.png: ${error.message.split("\n")[0]}`);
    } finally {
      await end();
    }
  }
  if (only.length > 0 && only.every((name) => name.startsWith("hub-"))) continue;
  for (const theme of ["light", "dark"]) {
    const wanted = SCREENS.filter(({ name }) => (theme === "light" || DARK.has(name)) && (only.length === 0 || only.includes(name)));
    const fixture = await Fixture.begin({ scripted: true, args: ["--approval", "strict"], folder: PLACE });
    try {
      const set = await stage(fixture, size, theme);
      for (const { name, show, leave } of wanted.filter(({ where }) => where(set))) {
        const file = path.join(FOLDER, `${name}-${size.name}${theme === "dark" ? "-dark" : ""}.png`);
        try {
          const person = await show(set);
          await person.settled();
          writeFileSync(file, reduced(await person.picture()));
          await leave(set);
          console.log(path.basename(file));
        } catch (error) {
          failed += 1;
          console.error(`${path.basename(file)}: ${error.message.split("\n")[0]}`);
        }
      }
    } finally {
      await fixture.end();
    }
  }
}
await closeBrowser();
process.exitCode = failed === 0 ? 0 : 1;
