// Makes a picture of a screen small: a PNG with at most 256 colours, which is what a page of text needs.
//
// Half of them are the colours that are seen most, the others those that would be missed most: rare ones that
// nothing is near to. What is left, mostly the edges of letters, becomes the nearest of them.

import { deflateSync, inflateSync } from "node:zlib";

const COLOURS_MAX = 256;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

export function reduced(png) {
  const { width, height, pixels } = decoded(png);
  const seen = new Map();
  for (const pixel of pixels) seen.set(pixel, (seen.get(pixel) ?? 0) + 1);
  const palette = chosen(seen);
  const index = new Map(palette.map((colour, at) => [colour, at]));
  for (const colour of seen.keys()) if (!index.has(colour)) index.set(colour, nearest(palette, colour));
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) rows[y * (width + 1) + 1 + x] = index.get(pixels[y * width + x]);
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  // Eight bits of an index into the palette.
  head.set([8, 3, 0, 0, 0], 8);
  const colours = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  return Buffer.concat([SIGNATURE, chunk("IHDR", head), chunk("PLTE", colours), chunk("IDAT", deflateSync(rows, { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

function chosen(seen) {
  const sorted = [...seen].sort((one, other) => other[1] - one[1]);
  const palette = sorted.splice(0, COLOURS_MAX / 2).map(([colour]) => colour);
  const rest = sorted.map(([colour, count]) => ({ colour, count, far: far(colour, palette[nearest(palette, colour)]) }));
  while (palette.length < COLOURS_MAX && rest.length > 0) {
    let most = 0;
    for (let at = 1; at < rest.length; at += 1) if (rest[at].count * rest[at].far > rest[most].count * rest[most].far) most = at;
    const [{ colour }] = rest.splice(most, 1);
    palette.push(colour);
    for (const other of rest) other.far = Math.min(other.far, far(other.colour, colour));
  }
  return palette;
}

function nearest(palette, colour) {
  let best = 0;
  for (let at = 1; at < palette.length; at += 1) if (far(palette[at], colour) < far(palette[best], colour)) best = at;
  return best;
}

function far(one, other) {
  const [red, green, blue] = [16, 8, 0].map((shift) => ((one >> shift) & 255) - ((other >> shift) & 255));
  return red * red + green * green + blue * blue;
}

/** The pixels of a PNG as the browser writes it: eight bits per channel, with or without alpha, not interlaced. */
function decoded(png) {
  let at = SIGNATURE.length;
  let head;
  const parts = [];
  while (at < png.length) {
    const length = png.readUInt32BE(at);
    const kind = png.toString("latin1", at + 4, at + 8);
    const body = png.subarray(at + 8, at + 8 + length);
    if (kind === "IHDR") head = body;
    if (kind === "IDAT") parts.push(body);
    at += length + 12;
  }
  const [width, height] = [head.readUInt32BE(0), head.readUInt32BE(4)];
  const channels = { 2: 3, 6: 4 }[head[9]];
  if (head[8] !== 8 || !channels || head[12] !== 0) throw new Error("a form of PNG that is not known here");
  return { width, height, pixels: unfiltered(inflateSync(Buffer.concat(parts)), width, height, channels) };
}

function unfiltered(data, width, height, channels) {
  const stride = width * channels;
  let above = new Uint8Array(stride);
  const pixels = new Uint32Array(width * height);
  for (let y = 0; y < height; y += 1) {
    const filter = data[y * (stride + 1)];
    const row = Uint8Array.from(data.subarray(y * (stride + 1) + 1, (y + 1) * (stride + 1)));
    for (let x = 0; x < stride; x += 1) {
      const left = x >= channels ? row[x - channels] : 0;
      const corner = x >= channels ? above[x - channels] : 0;
      row[x] += [0, left, above[x], (left + above[x]) >> 1, paeth(left, above[x], corner)][filter];
    }
    for (let x = 0; x < width; x += 1) {
      const from = x * channels;
      pixels[y * width + x] = (row[from] << 16) | (row[from + 1] << 8) | row[from + 2];
    }
    above = row;
  }
  return pixels;
}

function paeth(left, up, corner) {
  const guess = left + up - corner;
  const [a, b, c] = [left, up, corner].map((value) => Math.abs(guess - value));
  return a <= b && a <= c ? left : b <= c ? up : corner;
}

function chunk(kind, body) {
  const named = Buffer.concat([Buffer.from(kind, "latin1"), body]);
  const ends = Buffer.alloc(8);
  ends.writeUInt32BE(body.length, 0);
  ends.writeUInt32BE(checksum(named), 4);
  return Buffer.concat([ends.subarray(0, 4), named, ends.subarray(4)]);
}

function checksum(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  }
  return (sum ^ 0xffffffff) >>> 0;
}
