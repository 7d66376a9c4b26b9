// Draws the icons of the app into public/: `node dev/icons.mjs`. What it draws is committed.
//
// A laid rope across a square: strands at an angle to its length, every third of them coloured, as ropewalks
// marked theirs with a rogue's yarn. One list of strands gives the SVG and, sampled, the PNGs, so that no
// drawing program and no browser is needed, and everybody gets the same bytes.

import { writeFileSync } from 'node:fs'
import { deflateSync } from 'node:zlib'

const SIZE = 512
const GROUND = [18, 44, 71]
const HEMP = [236, 208, 156]
const YARN = [108, 178, 255]
/** Strands in the rope's own directions: how far apart, how far they lean, how thick. */
const STEP = 76
const LEAN = 46
const HALF = 74
const RADIUS = 29
const SAMPLES = 4

const strands = Array.from({ length: 13 }, (_, at) => at - 6).map((at) => ({
  from: place(at * STEP - LEAN, HALF),
  to: place(at * STEP + LEAN, -HALF),
  colour: ((at % 3) + 3) % 3 === 0 ? YARN : HEMP,
}))

/** From along and across the rope to the picture: the rope goes from the lower left to the upper right. */
function place(along, across) {
  const turn = Math.SQRT1_2
  return [SIZE / 2 + (along + across) * turn, SIZE / 2 + (across - along) * turn]
}

function distance([x, y], { from, to }) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]]
  const t = Math.min(1, Math.max(0, ((x - from[0]) * dx + (y - from[1]) * dy) / (dx * dx + dy * dy)))
  return Math.hypot(x - from[0] - t * dx, y - from[1] - t * dy)
}

/** How far outside a square with round corners. */
function outside([x, y], radius) {
  const d = [Math.abs(x - SIZE / 2), Math.abs(y - SIZE / 2)].map((one) => one - SIZE / 2 + radius)
  return Math.hypot(Math.max(d[0], 0), Math.max(d[1], 0)) + Math.min(Math.max(d[0], d[1]), 0) - radius
}

/** The colour at a point, or nothing. `corner` is null for one that fills the whole square. */
function full(corner) {
  return (point) => {
    if (corner !== null && outside(point, corner) > 0) return null
    return strands.find((one) => distance(point, one) < RADIUS)?.colour ?? GROUND
  }
}

/** White on nothing: what Android makes a shape of. */
const badge = (point) => (strands.some((one) => distance(point, one) < RADIUS - 2) && Math.hypot(point[0] - 256, point[1] - 256) < 250 ? [255, 255, 255] : null)

function png(size, colourAt) {
  const rows = Buffer.alloc(size * (size * 4 + 1))
  for (let y = 0; y < size; y++) for (let x = 0; x < size; x++) {
    rows.set(pixel(x, y, SIZE / size, colourAt), y * (size * 4 + 1) + 1 + x * 4)
  }
  const header = Buffer.alloc(13)
  header.writeUInt32BE(size, 0)
  header.writeUInt32BE(size, 4)
  header.set([8, 6, 0, 0, 0], 8)
  const magic = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10])
  return Buffer.concat([magic, chunk('IHDR', header), chunk('IDAT', deflateSync(rows, { level: 9 })), chunk('IEND', Buffer.alloc(0))])
}

function pixel(x, y, scale, colourAt) {
  const sum = [0, 0, 0]
  let hits = 0
  for (let i = 0; i < SAMPLES * SAMPLES; i++) {
    const point = [(x + ((i % SAMPLES) + 0.5) / SAMPLES) * scale, (y + (Math.floor(i / SAMPLES) + 0.5) / SAMPLES) * scale]
    const colour = colourAt(point)
    if (!colour) continue
    hits += 1
    for (const channel of [0, 1, 2]) sum[channel] += colour[channel]
  }
  const mean = sum.map((one) => (hits === 0 ? 0 : Math.round(one / hits)))
  return [...mean, Math.round((255 * hits) / (SAMPLES * SAMPLES))]
}

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name), data])
  const out = Buffer.alloc(body.length + 8)
  out.writeUInt32BE(data.length, 0)
  body.copy(out, 4)
  out.writeUInt32BE(crc(body), body.length + 4)
  return out
}

function crc(bytes) {
  let sum = 0xffffffff
  for (const byte of bytes) {
    sum ^= byte
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0)
  }
  return ~sum >>> 0
}

function svg() {
  const hex = (colour) => `#${colour.map((one) => one.toString(16).padStart(2, '0')).join('')}`
  const lines = (colour) => strands.filter((one) => one.colour === colour)
    .map(({ from, to }) => `M${from.map(Math.round).join(' ')}L${to.map(Math.round).join(' ')}`).join('')
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${SIZE} ${SIZE}">
<clipPath id="edge"><rect width="${SIZE}" height="${SIZE}" rx="112"/></clipPath>
<g clip-path="url(#edge)" stroke-width="${RADIUS * 2}" stroke-linecap="round">
<rect width="${SIZE}" height="${SIZE}" fill="${hex(GROUND)}"/>
<path stroke="${hex(HEMP)}" d="${lines(HEMP)}"/>
<path stroke="${hex(YARN)}" d="${lines(YARN)}"/>
</g>
</svg>
`
}

const out = (name) => new URL(`../public/${name}`, import.meta.url)
writeFileSync(out('icon.svg'), svg())
writeFileSync(out('icon-192.png'), png(192, full(112)))
writeFileSync(out('icon-512.png'), png(512, full(112)))
writeFileSync(out('icon-maskable.png'), png(512, full(null)))
writeFileSync(out('apple-touch-icon.png'), png(180, full(null)))
writeFileSync(out('badge.png'), png(96, badge))
