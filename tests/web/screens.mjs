// Every screen of the app, and how one gets there: used by the test that looks at each with axe, and by the
// script that takes their pictures.

import { until } from "./until.mjs";

const ANSWER = `## What a hitch is

A **hitch** ties a rope to something; a *bend* ties two ropes together.

1. Take a turn around the post.
2. Cross over the standing part.
3. Tuck the end under, and pull.

\`\`\`rust
/// Turns that hold, with one to spare.
pub fn tie(turns: u32) -> u32 {
    turns.saturating_add(2)
}
\`\`\`

| knot | holds | unties |
|---|---|---|
| clove hitch | well | easily |
| constrictor | for good | hardly |

See [the glossary](https://example.org/knots) for more.
`;

const PLAN = [
  { content: "Look at how knots are tied", status: "completed", priority: "medium" },
  { content: "Spell out the numbers in the notes", status: "in_progress", priority: "medium" },
  { content: "Run the tests", status: "pending", priority: "medium" },
];

/** Somebody who has just come in for the first time. */
export async function stage(fixture, size, theme) {
  return { fixture, size, theme, owner: await fixture.owner(size, { theme }) };
}

/** Sessions in every state that the screens show. */
async function fill({ fixture, owner }) {
  const { model } = fixture;
  const opened = async (settings) => {
    const [{ ok, error }] = await owner.raw({ do: "open", folder: null, settings });
    if (!ok) throw new Error(error.message);
    return ok.session;
  };
  const prompt = (session, text) => owner.raw({ do: "prompt", session, key: text, text, pictures: [] });
  const over = (session) => until("the turn is over", async () => !(await owner.state(session)).busy);

  model.title = "Spell out the numbers";
  model.says(
    { think: "The notes have numbers as digits. I read them first, then I change the lines that people see." },
    { call: ["update_plan", { entries: PLAN }] },
    { call: ["read", { path: "notes.txt" }] },
    { call: ["shell", { command: "printf '\\033[32mtest knots ... ok\\033[0m\\n'; printf '\\033[1m12 passed\\033[0m\\n'" }] },
  );
  model.says({
    call: ["edit", { path: "notes.txt", edits: [{ old: "line 3\n", new: "line three\n" }, { old: "line 36\n", new: "line thirty-six\n" }] }],
  }, { call: ["edit", { path: "src/knot.rs", old: "    turns + 1", new: "    turns.saturating_add(2)" }] });
  model.says({ text: ANSWER });
  const rich = await opened({ approval: "full" });
  await prompt(rich, "Spell out the numbers in the notes, and tell me what a hitch is.");
  await over(rich);

  model.title = "Publish the crate";
  model.says({ text: "I push the branch first." }, { call: ["shell", { command: "git push --force origin main" }] });
  const asking = await opened({});
  await prompt(asking, "publish the crate");
  await until("it asks", async () => (await owner.state(asking)).asks.length === 1);

  model.title = "Look around";
  model.says({ call: ["shell", { command: "ls src" }] });
  const looking = await opened({});
  await prompt(looking, "what is in the sources?");
  await until("it asks", async () => (await owner.state(looking)).asks.length === 1);

  model.title = "Add a module";
  model.says({ call: ["edit", { path: "src/lib.rs", old: "mod knot;", new: "mod hitch;\nmod knot;" }] });
  const changing = await opened({});
  await prompt(changing, "add a module for hitches");
  await until("it asks", async () => (await owner.state(changing)).asks.length === 1);

  model.title = "A long think";
  let goOn;
  model.says({ text: "I am still at it: " }, { wait: new Promise((go) => (goOn = go)) });
  fixture.atEnd(() => goOn());
  const working = await opened({});
  await prompt(working, "think about it for a while");
  await until("it works", async () => (await owner.state(working)).busy);
  await owner.raw({ do: "prompt", session: working, key: "later", text: "and then run the tests", pictures: [] });
  return { rich, asking, looking, changing, working };
}

/** A step that leaves the page of the owner, or of somebody else, on a screen. */
export const SCREENS = [
  {
    name: "empty",
    show: async ({ owner }) => {
      await owner.home();
      await owner.page.getByRole("heading", { name: "No sessions yet" }).waitFor();
      return owner;
    },
    leave: async () => {},
    where: () => true,
  },
  screen("sessions", async ({ owner, rich }) => {
    await owner.home();
    await owner.card(rich).waitFor();
  }),
  screen("session", async ({ owner, rich }) => {
    await owner.goto(`/s/${rich}`);
    await owner.hears("unties");
  }),
  screen("session-top", async ({ owner, rich }) => {
    await owner.goto(`/s/${rich}`);
    await owner.hears("unties");
    await owner.transcript().evaluate((log) => log.scrollTo(0, 0));
  }, async () => {}, ({ size }) => size.name === "phone"),
  screen("working", async ({ owner, working }) => {
    await owner.goto(`/s/${working}`);
    await owner.hears("still at it");
    await until("a prompt waits", async () => (await owner.queue()).length === 1);
  }),
  screen("permission", async ({ owner, asking }) => {
    await owner.goto(`/s/${asking}`);
    await until("it can be answered", () => owner.allowButton().isEnabled());
  }),
  screen("permission-change", async ({ owner, changing }) => {
    const { asks } = await owner.state(changing);
    await owner.goto(`/s/${changing}/ask/${asks[0].ask}`);
    await until("the change is shown", async () => /mod hitch/.test(await owner.ask().innerText()));
    await until("it can be answered", () => owner.allowButton().isEnabled());
  }),
  screen("permission-always", async ({ owner, looking }) => {
    await owner.goto("/");
    await owner.goto(`/s/${looking}`);
    await owner.ask().waitFor();
    await owner.ask().getByRole("button", { name: /^allow always/i }).click();
  }),
  screen("inbox", async ({ owner }) => {
    await owner.goto("/inbox");
    await until("all wait", async () => (await owner.waiting().count()) === 3);
  }),
  screen("plan", async ({ owner, rich }) => {
    await owner.goto(`/s/${rich}`);
    await (await owner.plan()).waitFor();
  }, async ({ owner }) => {
    await owner.page.keyboard.press("Escape");
  }),
  screen("changes", async ({ owner, rich }) => {
    await owner.goto(`/s/${rich}/changes`);
    await owner.page.getByRole("navigation", { name: "Changed files" }).getByText("notes.txt").waitFor();
  }),
  screen("diff", async ({ owner, rich }) => {
    await owner.review(rich, "notes.txt");
    await until("its hunks are shown", async () => (await owner.hunks().count()) === 2);
  }),
  screen("new", async ({ owner }) => {
    await owner.goto("/new");
    await owner.page.getByRole("main").getByRole("textbox").last().waitFor();
  }),
  screen("settings", async ({ owner }) => {
    await owner.goto("/settings");
    await owner.page.getByRole("heading", { name: "Appearance" }).waitFor();
  }),
  screen("devices", async ({ owner }) => {
    await owner.invite("driver");
    await owner.page.getByRole("button", { name: "Dismiss" }).click();
  }),
  screen("help", async ({ owner }) => {
    await owner.home();
    await owner.page.keyboard.press("?");
    await owner.page.getByRole("dialog").waitFor();
  }, async ({ owner }) => {
    await owner.page.keyboard.press("Escape");
  }, (set) => set.size.name === "desktop"),
  stranger("pair", "/pair"),
  stranger("login", "/login"),
  stranger("signed-out", "/"),
];

function screen(name, show, leave = async () => {}, where = () => true) {
  const shown = async (set) => {
    set.filled ??= Object.assign(set, await fill(set));
    await show(set);
    return set.owner;
  };
  return { name, show: shown, leave, where };
}

/** A screen for somebody who is not in. */
function stranger(name, path) {
  const show = async (set) => {
    set.stranger ??= await set.fixture.person(set.size, { theme: set.theme });
    await set.stranger.page.goto(path);
    await set.stranger.page.locator("#app :is(h1, h2, button)").first().waitFor();
    return set.stranger;
  };
  return { name, show, leave: async () => {}, where: () => true };
}
