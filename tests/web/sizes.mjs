// How large a built app is: `node sizes.mjs DIST` prints JSON.
//
// "First" is what a browser must have before it can show anything: the files that index.html names and what
// those import in their turn. What is behind an `import()` comes later.

import { readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";

const dist = process.argv[2];
const page = readFileSync(path.join(dist, "index.html"), "utf8");
const named = [...page.matchAll(/(?:src|href)="\/([^"]+)"/g)].map((match) => match[1]);
const first = new Set(["index.html"]);
const looked = named.filter((name) => /\.(js|css)$/.test(name));
while (looked.length > 0) {
  const name = looked.pop();
  if (first.has(name)) continue;
  first.add(name);
  const text = readFileSync(path.join(dist, name), "utf8");
  // A static import begins a statement; `import("…")` has a bracket instead of a blank or a quote.
  for (const match of text.matchAll(/(?:^|[;}\n])\s*(?:import|export)\s*(?:[^"'();]*?from\s*)?["']\.\/([^"']+)["']/g)) {
    looked.push(path.posix.join(path.posix.dirname(name), match[1]));
  }
}
const files = readdirSync(dist, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => path.relative(dist, path.join(entry.parentPath ?? entry.path, entry.name)))
  .sort()
  .map((name) => {
    const bytes = readFileSync(path.join(dist, name));
    return { name, bytes: bytes.length, gzip: gzipSync(bytes, { level: 9 }).length, first: first.has(name) };
  });
const sum = (wanted) => files.filter(wanted).reduce((bytes, file) => bytes + file.gzip, 0);
console.log(
  JSON.stringify({
    files,
    firstScriptsGzip: sum((file) => file.first && file.name.endsWith(".js")),
    firstGzip: sum((file) => file.first),
    scriptsGzip: sum((file) => file.name.endsWith(".js")),
  }),
);
