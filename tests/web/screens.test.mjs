// Every screen in both themes and on both devices is one that people with a screen reader can use.

import { check, SIZES } from "./harness.mjs";
import { SCREENS, stage } from "./screens.mjs";

for (const size of SIZES) {
  for (const theme of ["light", "dark"]) {
    check(`no screen keeps anybody out (${size.name}, ${theme})`, { scripted: true, args: ["--approval", "strict"] }, async (scene) => {
      const stageSet = await stage(scene, size, theme);
      for (const screen of SCREENS) {
        const person = await screen.show(stageSet);
        await person.accessible(`${screen.name}, ${size.name}, ${theme}`);
      }
    });
  }
}
