// What only a machine and its devices can read: the device's side of `crates/seal`, with WebCrypto.
//
// `docs/security.md` ("End to end") says why it is like this, `crates/seal/vectors.json` has one of
// everything, and both sides are tested against it. Nothing here knows storage or sockets. Private keys are
// made so that the browser gives them to nobody, not even to this page.

type Bytes = Uint8Array<ArrayBuffer>

/** What came was changed, moved, repeated, or is for somebody else. */
export class Unsealable extends Error {
  override name = 'Unsealable'
}

const VERSION = 'ropewalk.seal.v1'
const KIND = { content: 0x01, keys: 0x02, offer: 0x10, paired: 0x11, laneAsk: 0x20, laneAnswer: 0x21, call: 0x30, reply: 0x31 } as const
const POINT_BYTES = 65
const NAME_BYTES_MAX = 128
const GENERATIONS_MAX = 64
const CURVE = { name: 'ECDH', namedCurve: 'P-256' }

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true })
const none: Bytes = new Uint8Array(0)

export function toText(bytes: Bytes): string {
  let text = ''
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000))
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')
}

export function fromText(text: string): Bytes {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) throw new Unsealable('This is not an encrypted message.')
  const whole = atob(text.replaceAll('-', '+').replaceAll('_', '/'))
  const bytes = new Uint8Array(whole.length)
  for (let at = 0; at < whole.length; at += 1) bytes[at] = whole.charCodeAt(at)
  // A last letter has bits that mean nothing: another spelling of the same bytes is not the same message.
  if (toText(bytes) !== text) throw new Unsealable('This is not an encrypted message.')
  return bytes
}

function joined(...parts: Bytes[]): Bytes {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

function number(value: number): Bytes {
  if (!Number.isSafeInteger(value)) throw new Unsealable('The message has an invalid number.')
  const bytes = new Uint8Array(8)
  new DataView(bytes.buffer).setBigInt64(0, BigInt(value))
  return bytes
}

type Field = Bytes | string | number | null

/** A label and fields, each after its length: no two lists give the same bytes. Nothing is an empty field. */
function context(label: string, ...fields: Field[]): Bytes {
  const parts = [VERSION, label, ...fields].map((field) => {
    const bytes = field === null ? none : typeof field === 'string' ? encoder.encode(field) : typeof field === 'number' ? number(field) : field
    const length = new Uint8Array(4)
    new DataView(length.buffer).setUint32(0, bytes.length)
    return joined(length, bytes)
  })
  return joined(...parts)
}

/** Takes a message apart from its front. */
class Reader {
  private at = 1
  constructor(private readonly whole: Bytes, kind: number) {
    if (whole[0] !== kind) throw new Unsealable('This is not an encrypted message, or it has another version.')
  }

  take(count: number): Bytes {
    const taken = this.whole.slice(this.at, this.at + count)
    if (taken.length < count) throw new Unsealable('Part of the message is missing.')
    this.at += count
    return taken
  }

  number(): number {
    return asNumber(this.take(8))
  }

  rest(): Bytes {
    return this.take(this.whole.length - this.at)
  }

  end(): void {
    if (this.at !== this.whole.length) throw new Unsealable('The message has extra data at its end.')
  }
}

function asNumber(bytes: Bytes): number {
  const value = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0)
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new Unsealable('The message has an invalid number.')
  return Number(value)
}

const hkdf = (salt: Bytes, info: Bytes) => ({ name: 'HKDF', hash: 'SHA-256', salt, info })
const base = (secret: Bytes) => crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveKey'])
const aes = (from: CryptoKey, salt: Bytes, info: Bytes, use: 'encrypt' | 'decrypt') =>
  crypto.subtle.deriveKey(hkdf(salt, info), from, { name: 'AES-GCM', length: 256 }, false, [use])
const mac = (from: CryptoKey, info: Bytes) =>
  crypto.subtle.deriveKey(hkdf(none, info), from, { name: 'HMAC', hash: 'SHA-256', length: 256 }, false, ['sign', 'verify'])
const sign = async (key: CryptoKey, what: Bytes): Promise<Bytes> => new Uint8Array(await crypto.subtle.sign('HMAC', key, what))

async function verify(key: CryptoKey, given: Bytes, what: Bytes): Promise<void> {
  if (!(await crypto.subtle.verify('HMAC', key, given, what))) throw new Unsealable('The message is from someone else, or was changed on the way.')
}

async function open(key: CryptoKey, nonce: Bytes, bound: Bytes, sealed: Bytes): Promise<Bytes> {
  try {
    return new Uint8Array(await crypto.subtle.decrypt({ name: 'AES-GCM', iv: nonce, additionalData: bound }, key, sealed))
  } catch {
    throw new Unsealable('The message is for someone else, or was changed on the way.')
  }
}

async function shortDigest(label: string, point: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', context(label, point))).slice(0, 16)
}

function same(one: Bytes, other: Bytes): boolean {
  return toText(one) === toText(other)
}

/** The text of something that was opened. */
export function textOf(bytes: Bytes): string {
  try {
    return decoder.decode(bytes)
  } catch {
    throw new Unsealable('The decrypted message is not text.')
  }
}

/** This device's own keys, for one machine. */
export interface DeviceKeys {
  privateKey: CryptoKey
  /** The public key: a point of the curve. */
  point: Bytes
}

export async function newKeys(): Promise<DeviceKeys> {
  const { privateKey, publicKey } = await crypto.subtle.generateKey(CURVE, false, ['deriveBits'])
  return { privateKey, point: new Uint8Array(await crypto.subtle.exportKey('raw', publicKey)) }
}

/** What this device and a machine have in common. */
export class Bond {
  private constructor(
    readonly machine: string,
    readonly device: Bytes,
    private readonly points: [Bytes, Bytes],
    private readonly shared: CryptoKey,
  ) {}

  static async of(machine: string, own: DeviceKeys, point: Bytes): Promise<Bond> {
    const theirs = await crypto.subtle.importKey('raw', point, CURVE, false, []).catch(() => {
      throw new Unsealable('This is not a public key.')
    })
    const shared = await crypto.subtle.deriveBits({ name: 'ECDH', public: theirs }, own.privateKey, 256)
    return new Bond(machine, await shortDigest('device', own.point), [point, own.point], await base(new Uint8Array(shared)))
  }

  /** The device's id, as the machine and the hub say it. */
  get id(): string {
    return toText(this.device)
  }

  /** The keys of this generation, wrapped for this device. */
  async unwrap(generation: number, wrapped: string): Promise<ContentKeys> {
    const reader = new Reader(fromText(wrapped), KIND.keys)
    const nonce = reader.take(12)
    const key = await aes(this.shared, none, this.purpose('wrap'), 'decrypt')
    const plain = await open(key, nonce, context('keys', this.machine, this.device, generation), reader.rest())
    return ContentKeys.of(this.machine, generation, plain)
  }

  /** What to send to begin a lane, and what the machine's answer makes of it. */
  async askLane(lane: Bytes = crypto.getRandomValues(new Uint8Array(16))): Promise<{ ask: string; answered(text: string): Promise<Lane> }> {
    const key = await mac(this.shared, this.purpose('lanes'))
    const signed = await sign(key, context('lane ask', this.machine, this.device, lane))
    const ask = toText(joined(new Uint8Array([KIND.laneAsk]), this.device, lane, signed))
    return {
      ask,
      answered: async (text) => {
        const reader = new Reader(fromText(text), KIND.laneAnswer)
        const [named, challenge, given] = [reader.take(16), reader.take(16), reader.take(32)]
        reader.end()
        if (!same(named, lane)) throw new Unsealable('The reply belongs to another request.')
        await verify(key, given, context('lane answer', this.machine, this.device, lane, challenge))
        const salt = joined(lane, challenge)
        const call = await aes(this.shared, salt, this.purpose('call'), 'encrypt')
        return new Lane(this, lane, call, await aes(this.shared, salt, this.purpose('reply'), 'decrypt'))
      },
    }
  }

  private purpose(label: string): Bytes {
    return context(label, this.machine, ...this.points)
  }
}

/** A conversation: calls count upwards, and each has one reply that is bound to its number. */
export class Lane {
  private said = 0
  private readonly waiting = new Set<number>()
  constructor(private readonly bond: Bond, private readonly lane: Bytes, private readonly calls: CryptoKey, private readonly replies: CryptoKey) {}

  /** What is sealed first must be sent first. `make` is given the number that the reply will have. */
  async seal(make: (counter: number) => string): Promise<{ counter: number; sealed: string }> {
    const counter = (this.said += 1)
    const settings = { name: 'AES-GCM', iv: nonce(counter), additionalData: this.bound('call', counter) }
    const sealed = await crypto.subtle.encrypt(settings, this.calls, encoder.encode(make(counter)))
    this.waiting.add(counter)
    const head = joined(new Uint8Array([KIND.call]), this.bond.device, this.lane, number(counter))
    return { counter, sealed: toText(joined(head, new Uint8Array(sealed))) }
  }

  /** The reply to a call that waits for one. A second one is refused. */
  async open(text: string): Promise<{ counter: number; text: string }> {
    const reader = new Reader(fromText(text), KIND.reply)
    const [lane, counter] = [reader.take(16), reader.number()]
    if (!same(lane, this.lane)) throw new Unsealable('The message belongs to another conversation.')
    const plain = await open(this.replies, nonce(counter), this.bound('reply', counter), reader.rest())
    if (!this.waiting.delete(counter)) throw new Unsealable('The reply has already arrived.')
    return { counter, text: textOf(plain) }
  }

  private bound(label: string, counter: number): Bytes {
    return context(label, this.bond.machine, this.bond.device, this.lane, counter)
  }
}

/** A lane's keys live as long as its counter, so no nonce comes twice. */
const nonce = (counter: number) => joined(new Uint8Array(4), number(counter))

/** Where in a session something belongs: moved elsewhere it cannot be opened. */
export type SealContext =
  | { event: { seq: number } }
  | { view: { from: number | null; upto: number } }
  | { card: { state: string; asks: number[]; updatedAt: number } }

function placed(place: SealContext): Field[] {
  if ('event' in place) return ['event', place.event.seq]
  if ('view' in place) return ['view', place.view.from, place.view.upto]
  return ['card', place.card.state, joined(...place.card.asks.map(number)), place.card.updatedAt]
}

/** The keys of a machine's contents, of all generations. */
export class ContentKeys {
  /** Derived keys of sessions, because a view comes thirty times a second. */
  private readonly sessions = new Map<string, Promise<CryptoKey>>()
  private constructor(readonly machine: string, readonly generation: number, private readonly keys: Map<number, CryptoKey>) {}

  static async of(machine: string, generation: number, plain: Bytes): Promise<ContentKeys> {
    const count = plain.length / 40
    if (!Number.isInteger(count) || count < 1 || count > GENERATIONS_MAX) throw new Unsealable('The machine sent invalid keys.')
    const keys = new Map<number, CryptoKey>()
    for (let at = 0; at < plain.length; at += 40) keys.set(asNumber(plain.slice(at, at + 8)), await base(plain.slice(at + 8, at + 40)))
    plain.fill(0)
    if (keys.size !== count || Math.max(...keys.keys()) !== generation) throw new Unsealable('The machine sent invalid keys.')
    return new ContentKeys(machine, generation, keys)
  }

  async open(session: string, place: SealContext, text: string): Promise<string> {
    const sealed = fromText(text)
    const reader = new Reader(sealed, KIND.content)
    const [generation, nonce] = [reader.number(), reader.take(12)]
    const key = await this.ofSession(generation, session)
    return textOf(await open(key, nonce, context('content', this.machine, generation, session, ...placed(place)), reader.rest()))
  }

  private ofSession(generation: number, session: string): Promise<CryptoKey> {
    const name = `${generation} ${session}`
    let found = this.sessions.get(name)
    if (!found) {
      const key = this.keys.get(generation)
      if (!key) throw new Unsealable('The key for this message is missing.')
      found = aes(key, none, context('session', this.machine, generation, session), 'decrypt')
      if (this.sessions.size >= 256) this.sessions.clear()
      this.sessions.set(name, found)
    }
    return found
  }
}

/** The generation of a sealed event, view or card. */
export function generationOf(sealed: string): number {
  return new Reader(fromText(sealed.slice(0, 12)), KIND.content).number()
}

export interface PairingLink {
  machine: string
  secret: Bytes
  fingerprint: Bytes
}

/** What stands behind the `#` of a link with which a device is paired; nothing if this is none. */
export function pairingLink(fragment: string): PairingLink | null {
  const parts = /^([A-Za-z0-9._-]{1,128})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{22})$/.exec(fragment)
  if (!parts) return null
  try {
    return { machine: parts[1] ?? '', secret: fromText(parts[2] ?? ''), fingerprint: fromText(parts[3] ?? '') }
  } catch {
    return null
  }
}

export interface PairingResult {
  bond: Bond
  /** The machine's public key. */
  point: Bytes
  role: string
  /** They stand on both screens. */
  words: string
}

/** What to send to be paired, and what the machine's answer makes of it. */
export async function beginPairing(link: PairingLink, own: DeviceKeys, name: string): Promise<{ offer: string; answered(text: string): Promise<PairingResult> }> {
  const called = encoder.encode(name)
  if (called.length > NAME_BYTES_MAX) throw new Unsealable('The device name is too long. Choose a shorter one.')
  const key = await mac(await base(link.secret), context('pairing', link.machine, link.fingerprint))
  const invitation = (await sign(key, context('invitation'))).slice(0, 8)
  const signed = await sign(key, context('offer', own.point, called))
  const offer = toText(joined(new Uint8Array([KIND.offer]), invitation, own.point, signed, called))
  return {
    offer,
    answered: async (text) => {
      const reader = new Reader(fromText(text), KIND.paired)
      const [point, given, role] = [reader.take(POINT_BYTES), reader.take(32), reader.rest()]
      if (!same(await shortDigest('fingerprint', point), link.fingerprint)) throw new Unsealable('Another machine answered, not the one in the link. Do not pair with it.')
      await verify(key, given, context('paired', own.point, called, point, role))
      const bond = await Bond.of(link.machine, own, point)
      return { bond, point, role: textOf(role), words: await words(link.machine, point, own.point) }
    },
  }
}

async function words(machine: string, point: Bytes, own: Bytes): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', context('words', machine, point, own)))
  const pick = (list: string, byte = 0) => list.split(' ')[byte % 64]
  return `${pick(FIRST, digest[0])} ${pick(SECOND, digest[1])}`
}

/** The lists of `crates/seal/src/comparison_words.rs`. */
const FIRST = 'amber ashen azure black blue bold brave bright broad bronze brown calm clear cold copper coral crisp dark deep dry early fair fast fine fresh gentle gold grand green grey happy hazel high ivory jade keen kind large late light lime little loud lucky mild navy new noble olive open pale pink plain proud quick quiet red round ruby silver slow soft warm white'
const SECOND = 'anchor apple badger beach bear bell bird boat bridge brook candle castle cedar cloud comet crane deer dolphin eagle ember falcon fern field finch forest fox garden goose harbour hawk heron hill horse island lake lantern leaf lion maple meadow moon mountain otter owl pearl pine planet plum raven river robin rope sail seal ship star stone swan tiger tower valley violin whale willow'
