// Whether a page holds nothing but what the app made: used wherever foreign text is shown.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

export const injectionCases = (name) => JSON.parse(readFileSync(new URL(`./xss/${name}.json`, import.meta.url), "utf8")).cases;

/** Elements that a transcript can be made of. */
const ELEMENTS = new Set(
  `html head meta title link script body div main nav header footer section article aside span p a ul ol li h1 h2 h3 h4 h5 h6
   strong em b i u s del code pre blockquote hr br table thead tbody tr th td button textarea input label form select option
   details summary svg path g circle rect line polyline polygon kbd time dialog output dl dt dd small fieldset legend noscript mark ins sup sub
   figure figcaption progress wbr optgroup search menu hgroup abbr bdi canvas defs use symbol ellipse desc text`.split(/\s+/),
);

/** Remembers what is global before anything foreign is shown. */
export async function rememberGlobals(person) {
  person.globals = await person.page.evaluate(() => Object.getOwnPropertyNames(window));
}

/** Fails with everything that is strange. */
export async function assertInert(person) {
  const found = await person.page.evaluate(
    ({ allowed, globals }) => {
      const strange = [];
      const known = new Set(globals);
      // A frame's window is reachable by its index; there must be none.
      for (const name of Object.getOwnPropertyNames(window)) if (!known.has(name) && name !== "axe") strange.push(`global ${name}`);
      if ("xss" in window) strange.push("a script ran");
      const look = (root) => {
        for (const element of root.querySelectorAll("*")) {
          const tag = element.localName;
          const own = new URL(element.getAttribute("src") ?? element.getAttribute("href") ?? "", location.origin).origin === location.origin;
          if (tag === "img" && element.getAttribute("src") === "/icon.svg") continue;
          if (!allowed.includes(tag)) strange.push(`<${tag}> ${element.outerHTML.slice(0, 200)}`);
          for (const { name, value } of element.attributes) {
            if (name.startsWith("on")) strange.push(`${tag} ${name}=${value}`);
            if (["src", "srcset", "action", "formaction", "data", "poster", "background"].includes(name) && !/^(\/|data:image\/png|blob:)/.test(value)) strange.push(`${tag} ${name}=${value}`);
          }
          if (tag === "script" && !/^\/[a-z0-9-]+\.js$/.test(element.getAttribute("src") ?? "")) strange.push(`script ${element.outerHTML.slice(0, 200)}`);
          if (tag === "link" && !own) strange.push(`link ${element.outerHTML}`);
          if (tag === "a") {
            const { protocol, origin } = new URL(element.href || location.href, location.href);
            if (!["http:", "https:", "mailto:"].includes(protocol)) strange.push(`link to ${element.href}`);
            if (origin !== location.origin && protocol !== "mailto:" && !/noopener/.test(element.rel) ) strange.push(`link without noopener: ${element.outerHTML.slice(0, 200)}`);
            if (element.closest("[data-markdown], .markdown") && origin === location.origin && new URL(element.href).pathname.startsWith("/ui/")) strange.push(`link into the server: ${element.href}`);
          }
          if (element.shadowRoot) look(element.shadowRoot);
        }
      };
      look(document);
      return strange;
    },
    { allowed: [...ELEMENTS], globals: person.globals },
  );
  assert.deepEqual(found, []);
  await person.judge();
}
