import { beforeEach, expect, test, vi } from 'vitest'
import written from '../../../crates/seal/vectors.json?raw'
import type { HubTold, Request } from '../wire'
import { fromText, toText } from './seal-crypto'
import type { AskHub, OpenedFrame, SealedFrame, BrowserSealer } from './browser-sealer'
import type { StoredMachine, KeyStore } from './seal-store'

const { machine, device, pairing, contents, lane } = JSON.parse(written)
const shown: SealedFrame[] = contents.shown
const key = { on: 'key', machine: machine.id, generation: contents.generation, device: device.id, key: contents.wrapped } as const
const [card, oldCard, whole, to50, older, to60, to70] = shown as [SealedFrame, SealedFrame, SealedFrame, SealedFrame, SealedFrame, SealedFrame, SealedFrame]

let local: Map<string, string>
beforeEach(() => {
  vi.resetModules()
  vi.restoreAllMocks()
  local = new Map()
  vi.stubGlobal('localStorage', {
    getItem: (name: string) => local.get(name) ?? null, setItem: (name: string, text: string) => void local.set(name, text),
    removeItem: (name: string) => void local.delete(name), key: (place: number) => [...local.keys()][place] ?? null, get length() { return local.size },
  })
})

async function ofVectors(): Promise<StoredMachine> {
  const point = fromText(device.public)
  const jwk = { kty: 'EC', crv: 'P-256', x: toText(point.slice(1, 33)), y: toText(point.slice(33)), d: device.private }
  const privateKey = await crypto.subtle.importKey('jwk', jwk, { name: 'ECDH', namedCurve: 'P-256' }, false, ['deriveBits'])
  return { machine: machine.id, privateKey, point, machinePoint: fromText(machine.public), role: 'owner', pairedAt: 0 }
}

function storeOf(...machines: StoredMachine[]): KeyStore & { machines: Map<string, StoredMachine> } {
  const known = new Map(machines.map((one) => [one.machine, one]))
  return { machines: known, all: async () => [...known.values()], put: async (one) => void known.set(one.machine, one), drop: async (one) => void known.delete(one) }
}

/** A browser that is paired, at a hub which answers to lanes and nothing else. */
async function here(): Promise<{ seals: BrowserSealer; asked: unknown[] }> {
  const asked: unknown[] = []
  const ask: AskHub = async (request) => {
    asked.push(request)
    return { is: 'sealed', sealed: lane.answer }
  }
  const { BrowserSealer } = await import('./browser-sealer')
  return { seals: await BrowserSealer.load(ask, storeOf(await ofVectors())), asked }
}

const short = (inside: OpenedFrame[] | null) => inside?.map((one) => ('on' in one && one.on === 'view' ? one.upto : 'on' in one && one.on === 'cards' ? one.cards[0]?.title : one)) ?? null

test('a card and views are shown in order, and older ones are not shown', async () => {
  const { seals, asked } = await here()
  expect(await seals.open(key)).toEqual([])
  expect(short(await seals.open(card))).toEqual(['at 1800000000000'])
  expect(short(await seals.open(oldCard))).toEqual([])
  expect(short(await seals.open(whole))).toEqual([40])
  expect(short(await seals.open(to50))).toEqual([50])
  expect(short(await seals.open(older))).toEqual([])
  expect(short(await seals.open(whole))).toEqual([])
  expect(short(await seals.open(to60))).toEqual([60])
  expect(asked).toEqual([])
})

test('what is kept of a session is opened with its key, shown under its own id, and waits for nobody', async () => {
  const { seals } = await here()
  await seals.open(key)
  const branch = { of: (card as { session: string }).session, at: 7 }
  const [cards] = (await seals.open(Object.assign({}, card, { session: 'kept', branch }))) ?? []
  expect(cards).toMatchObject({ on: 'cards', cards: [{ session: 'kept', branch, state: 'done', asks: [] }] })
  const [view] = (await seals.open(Object.assign({}, whole, { session: 'kept', of: branch.of }))) ?? []
  expect(view).toMatchObject({ on: 'view', session: 'kept' })
  await expect(seals.open(Object.assign({}, card, { session: 'kept', branch: { of: 'another', at: 7 } }))).rejects.toMatchObject({ name: 'Unsealable' })
})

test('a view that leaves something out is not shown, and the whole is asked for', async () => {
  const { seals, asked } = await here()
  await seals.open(key)
  await seals.open(whole)
  expect(await seals.open(to60)).toEqual([])
  expect(asked).toEqual([{ do: 'watch', session: contents.session, after: null }])
})

test('what comes before its key waits for it', async () => {
  const { seals } = await here()
  for (const frame of [card, whole, to50]) expect(await seals.open(frame)).toEqual([])
  expect(short(await seals.open(key))).toEqual(['at 1800000000000', 40, 50])
})

test('a page that is loaded again shows nothing older than what it showed before', async () => {
  const first = (await here()).seals
  for (const frame of [key, card, whole, to50, to60]) await first.open(frame)
  vi.useFakeTimers()
  const { writeStored } = await import('./browser-storage')
  writeStored('sealed.seen', { [contents.session]: { upto: 60, updatedAt: 1_800_000_000_000 } })
  vi.useRealTimers()
  vi.resetModules()
  const { seals } = await here()
  await seals.open(key)
  expect(short(await seals.open(oldCard))).toEqual([])
  expect(short(await seals.open(whole))).toEqual([])
  expect(short(await seals.open(to50))).toEqual([])
  expect(short(await seals.open(to60))).toEqual([40, 50, 60])
  expect(short(await seals.open(to70))).toEqual([70])
})

test('a frame that was moved, changed, or sealed with an older key is not believed', async () => {
  const { seals } = await here()
  await seals.open(key)
  const refused = (frame: object) => expect(seals.open(frame as SealedFrame)).rejects.toMatchObject({ name: 'Unsealable' })
  await refused({ ...whole, session: 'another' })
  await refused({ ...whole, upto: 41 })
  await refused({ ...to50, from: null })
  await refused({ ...card, state: 'waiting' })
  await refused({ ...card, asks: [1] })
  await refused({ ...card, updatedAt: 1_800_000_000_001 })
  await refused({ ...whole, sealed: (card as { sealed: string }).sealed })
  const old = contents.sealed.find(({ generation }: { generation: number }) => generation === 1)
  await refused({ ...whole, sealed: old.sealed })
})

test('without a key of the machine there is nothing, and keys of others are none', async () => {
  const { seals } = await here()
  expect(await seals.open({ ...card, machine: 'desktop' } as SealedFrame)).toBeNull()
  expect(await seals.open({ ...key, device: 'somebody' })).toEqual([])
  expect(await seals.open(card)).toEqual([])
  await expect(seals.open({ ...key, generation: 3 })).rejects.toMatchObject({ name: 'Unsealable' })
  await expect(seals.seal('desktop', null, { do: 'rules' } as Request, 1)).rejects.toMatchObject({ name: 'Unsealable' })
})

test('keys of before a revocation are not taken again', async () => {
  local.set('ropewalk.sealed.machines', JSON.stringify({ [machine.id]: 3 }))
  const { seals } = await here()
  expect(await seals.open(key)).toEqual([])
  expect(await seals.open(card)).toEqual([])
})

test('requests are sealed in the order in which they are made, in one lane, and replies are for one of them', async () => {
  const { seals, asked } = await here()
  vi.spyOn(crypto, 'getRandomValues').mockImplementation((array) => {
    new Uint8Array(array!.buffer).set(fromText(lane.lane))
    return array
  })
  const [one, two] = await Promise.all([
    seals.seal(machine.id, 's', { do: 'rules' } as Request, 11),
    seals.seal(machine.id, null, { do: 'devices' } as Request, 12),
  ])
  expect(asked).toEqual([{ do: 'sealed', machine: machine.id, session: 's', sealed: lane.ask }])
  expect(one).toEqual({ do: 'sealed', machine: machine.id, session: 's', sealed: lane.calls[0].call })
  expect(two?.sealed).toBe(lane.calls[1].call)
  // The hub gives the first request the second one's answer.
  await expect(seals.open({ on: 'sealedReply', re: 11, sealed: lane.calls[1].reply } as HubTold as SealedFrame)).rejects.toMatchObject({ name: 'Unsealable' })
  const third = await seals.seal(machine.id, null, { do: 'devices' } as Request, 13)
  expect(third.sealed).not.toBe(two?.sealed)
})

test('a reply is read once, and what was lost begins another lane', async () => {
  const { seals, asked } = await here()
  vi.spyOn(crypto, 'getRandomValues').mockImplementation((array) => {
    new Uint8Array(array!.buffer).set(fromText(lane.lane))
    return array
  })
  await seals.seal(machine.id, 's', { do: 'rules' } as Request, 11)
  const reply = { on: 'sealedReply', re: 11, sealed: lane.calls[0].reply } as const
  expect(await seals.open(reply)).toEqual([{ re: 11, ok: { is: 'done' }, error: undefined }])
  await seals.seal(machine.id, 's', { do: 'devices' } as Request, 12)
  await expect(seals.open({ ...reply, re: 12 })).rejects.toMatchObject({ name: 'Unsealable' })
  await seals.seal(machine.id, 's', { do: 'devices' } as Request, 13)
  seals.lost(13)
  await seals.seal(machine.id, 's', { do: 'devices' } as Request, 14)
  expect(asked.length).toBe(2)
})

test('a browser is paired, keeps a key that nobody can read out, and knows the machine from then on', async () => {
  const { BrowserSealer } = await import('./browser-sealer')
  const store = storeOf()
  vi.spyOn(crypto.subtle, 'generateKey').mockImplementation(async () => {
    const { privateKey, point } = await ofVectors()
    return { privateKey, publicKey: await crypto.subtle.importKey('raw', point, { name: 'ECDH', namedCurve: 'P-256' }, true, []) } as CryptoKeyPair
  })
  const seals = await BrowserSealer.load(async (request) => {
    expect(request).toEqual({ do: 'sealed', machine: machine.id, session: null, sealed: pairing.offer })
    return { is: 'sealed', sealed: pairing.answer }
  }, store)
  expect(await seals.pair(pairing.link, device.name)).toEqual({ machine: machine.id, role: 'owner', words: pairing.words })
  expect(await seals.paired()).toEqual([machine.id])
  expect(store.machines.get(machine.id)?.privateKey.extractable).toBe(false)
  await seals.open(key)
  expect(short(await seals.open(card))).toEqual(['at 1800000000000'])
  await seals.forget(machine.id)
  expect(await seals.open(card)).toBeNull()
})

test('a machine that does not answer, or answers wrongly, is not kept', async () => {
  const { BrowserSealer } = await import('./browser-sealer')
  for (const answer of [null, {}, { sealed: 7 }, { sealed: 'AAAA' }, { sealed: pairing.answer }]) {
    const store = storeOf()
    const seals = await BrowserSealer.load(async () => answer, store)
    await expect(seals.pair(pairing.link, device.name)).rejects.toMatchObject({ name: 'Unsealable' })
    expect(store.machines.size).toBe(0)
  }
})

test('who tries to pair again after the answer was lost offers the same, until it has succeeded', async () => {
  const { BrowserSealer } = await import('./browser-sealer')
  const store = storeOf()
  let answer: unknown = null
  const offers: string[] = []
  const seals = await BrowserSealer.load(async (request) => {
    offers.push((request as { sealed: string }).sealed)
    return answer
  }, store)
  const { privateKey, point } = await ofVectors()
  const pairOfVectors = { privateKey, publicKey: await crypto.subtle.importKey('raw', point, { name: 'ECDH', namedCurve: 'P-256' }, true, []) } as CryptoKeyPair
  const made = vi.spyOn(crypto.subtle, 'generateKey').mockImplementationOnce(async () => pairOfVectors)
  await expect(seals.pair(pairing.link, device.name)).rejects.toMatchObject({ name: 'Unsealable' })
  answer = { is: 'sealed', sealed: pairing.answer }
  expect((await seals.pair(pairing.link, 'another name')).words).toBe(pairing.words)
  expect([offers, made.mock.calls.length, store.machines.size]).toEqual([[pairing.offer, pairing.offer], 1, 1])
  // Once it has succeeded nothing of it is used again.
  await expect(seals.pair(pairing.link, device.name)).rejects.toMatchObject({ name: 'Unsealable' })
  expect([offers[2] === pairing.offer, made.mock.calls.length]).toEqual([false, 2])
})
