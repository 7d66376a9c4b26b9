import { expect, test } from 'vitest'
import { Bond, fromText, generationOf, beginPairing, newKeys, pairingLink, type DeviceKeys, type SealContext, toText, Unsealable } from './seal-crypto'
import written from '../../../crates/seal/vectors.json?raw'

/** Made by the tests of `crates/seal`: one of everything. */
const vectors = JSON.parse(written)
const { machine, device, pairing, contents, lane } = vectors

/** The device of the vectors. Its private key has to be known here, as it never is in a browser. */
async function own(): Promise<DeviceKeys> {
  const point = fromText(device.public)
  const jwk = { kty: 'EC', crv: 'P-256', x: toText(point.slice(1, 33)), y: toText(point.slice(33)), d: device.private }
  return { privateKey: await crypto.subtle.importKey('jwk', jwk, { name: 'ECDH', namedCurve: 'P-256' }, false, ['deriveBits']), point }
}

const bond = async () => Bond.of(machine.id, await own(), fromText(machine.public))
const keys = async () => (await bond()).unwrap(contents.generation, contents.wrapped)

async function laneOfVectors() {
  const { ask, answered } = await (await bond()).askLane(fromText(lane.lane))
  return { ask, lane: await answered(lane.answer) }
}

/** Every letter another one, every length that is shorter, one letter more. */
function* damaged(text: string): Generator<string> {
  for (let at = 0; at < text.length; at += 1) {
    yield text.slice(0, at) + (text[at] === 'A' ? 'B' : 'A') + text.slice(at + 1)
    yield text.slice(0, at)
  }
  yield `${text}A`
}

const refused = async (work: () => unknown) => expect((async () => work())()).rejects.toThrow(Unsealable)

test('a device is paired with the very bytes that the machine expects', async () => {
  const link = pairingLink(pairing.link)!
  expect(link.machine).toBe(machine.id)
  const { offer, answered } = await beginPairing(link, await own(), device.name)
  expect(offer).toBe(pairing.offer)
  const paired = await answered(pairing.answer)
  expect([paired.role, paired.words, paired.bond.id]).toEqual([pairing.role, pairing.words, device.id])
  for (const text of damaged(pairing.answer)) await refused(() => answered(text))
})

test('a machine that does not know the secret, or is another one, pairs nobody', async () => {
  const link = pairingLink(pairing.link)!
  const { answered } = await beginPairing({ ...link, secret: new Uint8Array(16) }, await own(), device.name)
  await refused(() => answered(pairing.answer))
  const other = await beginPairing({ ...link, fingerprint: new Uint8Array(16) }, await own(), device.name)
  await refused(() => other.answered(pairing.answer))
})

test('what stands behind the # of other links is no link to pair with', () => {
  for (const text of ['', 'K7QX4MPA', 'abc-DEF_1', 'a.b.c', `${pairing.link}.`, `${pairing.link}A`, `/${pairing.link}`]) expect(pairingLink(text)).toBeNull()
})

test('what the machine sealed is opened, of this generation and of those before', async () => {
  const opened = await keys()
  for (const { place, plain, sealed, generation } of contents.sealed) {
    expect(await opened.open(contents.session, place, sealed)).toBe(plain)
    expect(generationOf(sealed)).toBe(generation)
  }
})

test('at any other place nothing is opened', async () => {
  const opened = await keys()
  for (const { place, sealed } of contents.sealed) {
    await refused(() => opened.open('another', place, sealed))
    for (const other of contents.sealed) {
      if (JSON.stringify(other.place) !== JSON.stringify(place)) await refused(() => opened.open(contents.session, other.place, sealed))
    }
  }
  const card: SealContext = { card: { state: 'waiting', asks: [3], updatedAt: 1_800_000_000_000 } }
  for (const { sealed } of contents.sealed) await refused(() => opened.open(contents.session, card, sealed))
})

test('nothing that was damaged is opened', async () => {
  const opened = await keys()
  const { place, sealed } = contents.sealed[0]
  for (const text of damaged(sealed)) await refused(() => opened.open(contents.session, place, text))
  for (const text of damaged(contents.wrapped)) await refused(async () => (await bond()).unwrap(contents.generation, text))
  await refused(async () => (await bond()).unwrap(contents.generation + 1, contents.wrapped))
})

test('calls are the very bytes that the machine expects, and replies are read once', async () => {
  const { ask, lane: talk } = await laneOfVectors()
  expect(ask).toBe(lane.ask)
  for (const { counter, plain, call } of lane.calls) expect(await talk.seal(() => plain)).toEqual({ counter, sealed: call })
  for (const { counter, said, reply } of [...lane.calls].reverse()) {
    expect(await talk.open(reply)).toEqual({ counter, text: said })
    await refused(() => talk.open(reply))
  }
})

test('a reply that was damaged, or to another conversation, is none', async () => {
  const { lane: talk } = await laneOfVectors()
  await talk.seal(() => lane.calls[0].plain)
  for (const text of damaged(lane.calls[0].reply)) await refused(() => talk.open(text))
  await refused(() => talk.open(lane.calls[1].reply))
  expect((await talk.open(lane.calls[0].reply)).counter).toBe(1)
  const { answered } = await (await bond()).askLane()
  await refused(() => answered(lane.answer))
})

test('a new key of this browser is given to nobody', async () => {
  const made = await newKeys()
  expect(made.privateKey.extractable).toBe(false)
  await expect(crypto.subtle.exportKey('jwk', made.privateKey)).rejects.toThrow()
})
