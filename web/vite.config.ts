import { readFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { minifySync, type Plugin } from 'vite'
import { defineConfig } from 'vitest/config'

// The server that the development page talks to: `ropewalk serve --http`.
const server = process.env.ROPEWALK_URL ?? 'http://127.0.0.1:5173'

// The page says which version it is of: one that a browser kept can meet a newer server.
const manifest = readFileSync(new URL('../Cargo.toml', import.meta.url), 'utf8')
const version = /^version = "(.+)"/m.exec(manifest)?.[1] ?? 'unknown'

// What the bundler passes on as it stands, the page and the service worker, without what only we read.
function small(): Plugin {
  let folder = ''
  return {
    name: 'small',
    apply: 'build',
    configResolved: ({ root, build }) => { folder = resolve(root, build.outDir) },
    transformIndexHtml: { order: 'post', handler: (html) => html.replaceAll(/\n\s*/g, '') + '\n' },
    writeBundle: {
      order: 'post',
      handler() {
        const worker = resolve(folder, 'sw.js')
        const { code, errors } = minifySync('sw.js', readFileSync(worker, 'utf8'), { module: false })
        if (errors.length > 0) throw new Error(`sw.js: ${errors[0]?.message}`)
        writeFileSync(worker, code)
      },
    },
  }
}

// File names are fixed: the binary embeds them by name and tells browsers by a digest when they change.
export default defineConfig({
  // Random tests take their time on a machine that does other things too.
  test: { testTimeout: 60_000 },
  plugins: [small()],
  define: { __VERSION__: JSON.stringify(version) },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    // Inside the crate that embeds it.
    outDir: '../crates/access/web',
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        entryFileNames: 'app.js',
        chunkFileNames: '[name].js',
        assetFileNames: '[name][extname]',
        // Code that several pages share has one name, whichever pages share it.
        codeSplitting: {
          groups: [
            { name: 'base', test: /node_modules\/(@?preact)\/|src\/lib\/(?!markdown|highlight|seal[.-]|browser-sealer)/ },
            { name: 'pairing', test: /src\/pair\/(pairing\.ts|sign-in\.css)$/ },
            { name: 'controls', test: /src\/settings\/(setting-controls\.tsx|settings\.css)$/ },
            { name: 'hub', test: /src\/hub\/(passkey|one-time-secret|use-hub-list|expiry)\.tsx?$|src\/hub\/hub\.css$/ },
          ],
        },
      },
    },
  },
  worker: { format: 'es', rolldownOptions: { output: { entryFileNames: '[name].js' } } },
  server: {
    port: 5174,
    // The server lets nobody in who comes from another address than its own.
    proxy: { '/ui': { target: server, ws: true, changeOrigin: true, headers: { origin: new URL(server).origin } } },
  },
})
