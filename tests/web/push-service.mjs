// A push service for the browser tests: takes what the server sends for browsers, verifies and decrypts
// it as the browser would, with Node's own cryptography, and writes one JSON line for each push.
//
//   node tests/web/push-service.mjs [--port N] [--status 201,410,...]
//
// The first line is {"listening":"http://127.0.0.1:PORT"}. Then:
//   POST /subscribe          a new browser: answers {endpoint, p256dh, auth}
//   POST /push/N             a push, answered with the next of --status, else 201
// A line has: path, payload, kind of trouble in `wrong` (null if all is in order), ttl, urgency, topic,
// claims, key, bytes.
//
// As a module: `const service = await start(); service.subscribe(); await service.next();`

import { createHmac, createDecipheriv, createECDH, createPublicKey, randomBytes, verify } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const HEADER_BYTES = 21;
const TAG_BYTES = 16;
const BODY_BYTES_MAX = 8192;

export async function start({ port = 0, statuses = [], log = () => {} } = {}) {
  const browsers = new Map();
  const received = [];
  const waiting = [];
  let origin = "";

  function subscribe() {
    const browser = newBrowser();
    const path = `/push/${browsers.size + 1}`;
    browsers.set(path, browser);
    return { endpoint: origin + path, ...keysOf(browser) };
  }

  function take(push) {
    log(push);
    const next = waiting.shift();
    if (next) next(push);
    else received.push(push);
  }

  const server = createServer((request, response) => {
    body(request).then((bytes) => {
      if (request.method === "POST" && request.url === "/subscribe") {
        return response.writeHead(201, { "content-type": "application/json" }).end(JSON.stringify(subscribe()));
      }
      take(lookAt(request, bytes, browsers.get(request.url), origin));
      response.writeHead(statuses.shift() ?? 201).end();
    }, () => response.writeHead(413).end());
  });
  await new Promise((ready) => server.listen(port, "127.0.0.1", ready));
  origin = `http://127.0.0.1:${server.address().port}`;

  return {
    origin,
    subscribe,
    /** What is answered to the pushes that follow, in this order. */
    answer: (...more) => statuses.push(...more),
    /** The next push, or an error after so many milliseconds. */
    next(timeout = 30_000) {
      if (received.length) return Promise.resolve(received.shift());
      return new Promise((resolve, reject) => {
        const late = setTimeout(() => {
          waiting.splice(waiting.indexOf(taken), 1);
          reject(new Error(`no push within ${timeout} ms`));
        }, timeout);
        const taken = (push) => {
          clearTimeout(late);
          resolve(push);
        };
        waiting.push(taken);
      });
    },
    /** Pushes that nobody has taken. */
    arrived: () => received.splice(0),
    close: () =>
      new Promise((closed) => {
        server.close(closed);
        server.closeAllConnections();
      }),
  };
}

function newBrowser() {
  const pair = createECDH("prime256v1");
  pair.generateKeys();
  return { pair, auth: randomBytes(16) };
}

function keysOf({ pair, auth }) {
  return { p256dh: pair.getPublicKey().toString("base64url"), auth: auth.toString("base64url") };
}

function lookAt(request, bytes, browser, origin) {
  const { ttl, urgency, topic } = request.headers;
  const push = { path: request.url, payload: null, wrong: null, ttl, urgency, topic, bytes: bytes.length };
  try {
    if (!browser) throw new Error("nobody subscribed here");
    if (request.method !== "POST" || request.headers["content-encoding"] !== "aes128gcm") {
      throw new Error(`${request.method} with ${request.headers["content-encoding"]}`);
    }
    if (!/^\d+$/.test(ttl ?? "")) throw new Error("no TTL");
    Object.assign(push, checkToken(request.headers.authorization ?? "", origin));
    push.payload = JSON.parse(open(bytes, browser).toString("utf8"));
  } catch (error) {
    push.wrong = error.message;
  }
  return push;
}

/** RFC 8292. */
function checkToken(authorization, origin) {
  const [, token, key] = /^vapid t=([\w.-]+), ?k=([\w-]+)$/.exec(authorization) ?? [];
  if (!token) throw new Error("no VAPID token");
  const [head, claims, signature] = token.split(".");
  const point = Buffer.from(key, "base64url");
  const publicKey = createPublicKey({
    format: "jwk",
    key: {
      kty: "EC",
      crv: "P-256",
      x: point.subarray(1, 33).toString("base64url"),
      y: point.subarray(33).toString("base64url"),
    },
  });
  const signed = Buffer.from(`${head}.${claims}`);
  const raw = Buffer.from(signature, "base64url");
  if (!verify("sha256", signed, { key: publicKey, dsaEncoding: "ieee-p1363" }, raw)) {
    throw new Error("a wrong signature");
  }
  const said = JSON.parse(Buffer.from(claims, "base64url"));
  if (JSON.parse(Buffer.from(head, "base64url")).alg !== "ES256" || said.aud !== origin) {
    throw new Error(`a token for ${said.aud}`);
  }
  const now = Date.now() / 1000;
  if (!(said.exp > now && said.exp <= now + 86_400)) throw new Error(`a token until ${said.exp}`);
  return { claims: said, key };
}

/** RFC 8291 and 8188, one record. */
export function open(bytes, { pair, auth }) {
  const salt = bytes.subarray(0, 16);
  const keyEnd = HEADER_BYTES + bytes[20];
  const theirs = bytes.subarray(HEADER_BYTES, keyEnd);
  const record = bytes.subarray(keyEnd);
  if (record.length > bytes.readUInt32BE(16)) throw new Error("more than one record");
  const shared = pair.computeSecret(theirs);
  const info = Buffer.concat([Buffer.from("WebPush: info\0"), pair.getPublicKey(), theirs]);
  const secret = hkdf(auth, shared, info, 32);
  const key = hkdf(salt, secret, Buffer.from("Content-Encoding: aes128gcm\0"), 16);
  const nonce = hkdf(salt, secret, Buffer.from("Content-Encoding: nonce\0"), 12);
  const decipher = createDecipheriv("aes-128-gcm", key, nonce);
  decipher.setAuthTag(record.subarray(-TAG_BYTES));
  const padded = Buffer.concat([decipher.update(record.subarray(0, -TAG_BYTES)), decipher.final()]);
  let end = padded.length - 1;
  while (end >= 0 && padded[end] === 0) end--;
  if (padded[end] !== 2) throw new Error("not the last record");
  return padded.subarray(0, end);
}

function hkdf(salt, input, info, length) {
  const extracted = createHmac("sha256", salt).update(input).digest();
  return createHmac("sha256", extracted).update(info).update(Buffer.from([1])).digest().subarray(0, length);
}

async function body(request) {
  const pieces = [];
  let length = 0;
  for await (const piece of request) {
    length += piece.length;
    if (length > BODY_BYTES_MAX) throw new Error("too long");
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const option = (name) => process.argv[process.argv.indexOf(name) + 1 || process.argv.length];
  const statuses = (option("--status") ?? "").split(",").filter(Boolean).map(Number);
  const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
  const service = await start({ port: Number(option("--port") ?? 0), statuses, log: print });
  print({ listening: service.origin });
}
