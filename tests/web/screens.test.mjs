// Every screen in both themes and on both devices is one that people with a screen reader or weak eyes can use.

import { check, SIZES } from "./harness.mjs";
import { SCREENS, stage } from "./screens.mjs";

for (const size of SIZES) {
  for (const theme of ["light", "dark"]) {
    check(`no screen keeps anybody out (${size.name}, ${theme})`, { scripted: true, args: ["--approval", "strict"] }, async (fixture) => {
      const set = await stage(fixture, size, theme);
      const found = [];
      for (const { name, show, leave } of SCREENS.filter(({ where }) => where(set))) {
        const person = await show(set);
        found.push(...(await person.obstacles()).map((one) => ({ screen: name, ...one })));
        await leave(set);
      }
      if (found.length > 0) throw new Error(`axe found:\n${found.map((one) => JSON.stringify(one)).join("\n")}`);
    });
  }
}
