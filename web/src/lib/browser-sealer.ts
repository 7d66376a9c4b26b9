// Sealed machines, as this browser knows them: opens what the hub passes on, seals what it must not read.
//
// The hub is not believed. A view or a card is shown only if it was sealed for exactly this place with the newest
// key, and is not older than what this browser has shown before. A reply counts only for the very request that it
// was sealed for. What the hub says in the clear about a sealed request is at best a refusal.

import type { Card, HubRequest, HubTold, Request, Told, View } from '../wire'
import { writeStoredSoon, readStored } from './browser-storage'
import { identityOf } from './base-machine-id'
import { Bond, type ContentKeys, fromText, generationOf, beginPairing, Lane, newKeys, pairingLink, Unsealable } from './seal-crypto'
import { browserStore, type KeyStore } from './seal-store'

export type SealedFrame = Extract<HubTold, { sealed: string } | { on: 'key' }>
type SealedRequest = Extract<HubRequest, { do: 'sealed' }>
type SealedView = Extract<HubTold, { on: 'sealedView' }>
type SealedCard = Extract<HubTold, { on: 'sealedCard' }>
/** What is inside: something told, or the answer to a request of this page. */
export type OpenedFrame = Told | { re: number; ok?: unknown; error?: unknown }
/** Asks the hub; the answer to something sealed comes back as it was sealed. */
export type AskHub = (request: SealedRequest | Extract<Request, { do: 'watch' }>) => Promise<unknown>

/** How far a session was shown here. */
interface ShownPosition { upto: number; updatedAt: number }
/** Sessions of which that is known; beyond it the one that was quiet for longest is forgotten. */
const SEEN_MAX = 1_000
/** Frames that wait for a key or for what leads up to what was seen before. */
const HELD_MAX = 256

interface PairedMachine {
  bond: Bond
  keys: ContentKeys | null
  /** By the name at the hub of the process that is talked to. */
  lanes: Map<string, Promise<Lane>>
  /** Waits for its key. */
  early: (SealedView | SealedCard)[]
}

interface Watching {
  /** Where this page is. */
  at: number
  /** Opened, and held back until it has come as far as this browser has been before. */
  behind: Told[]
}

export class BrowserSealer {
  private readonly machines = new Map<string, PairedMachine>()
  private readonly watching = new Map<string, Watching>()
  private readonly seen = new Map<string, ShownPosition>(Object.entries(readStored<Record<string, ShownPosition>>('sealed.seen') ?? {}))
  private readonly generations: Record<string, number> = readStored('sealed.machines') ?? {}
  private readonly waiting = new Map<number, { machine: string; lane: Lane; counter: number }>()
  private sealing: Promise<unknown> = Promise.resolve()
  /**
   * What was offered for a link until it is answered. The machine takes one offer for a link and answers the very same
   * one again; so who tries again, because the answer was lost, offers the same keys under the same name.
   */
  private joining: ({ fragment: string; own: Awaited<ReturnType<typeof newKeys>> } & Awaited<ReturnType<typeof beginPairing>>) | null = null

  private constructor(private readonly ask: AskHub, private readonly store: KeyStore) {}

  static async load(ask: AskHub, store: KeyStore = browserStore): Promise<BrowserSealer> {
    const here = new BrowserSealer(ask, store)
    for (const { machine, privateKey, point, machinePoint } of await store.all()) {
      here.know(machine, await Bond.of(machine, { privateKey, point }, machinePoint))
    }
    return here
  }

  /** The machines that this browser is paired with, also those that another tab was paired with meanwhile. */
  async paired(): Promise<string[]> {
    return (await this.store.all()).map(({ machine }) => machine)
  }

  /** Pairs this browser by what stands behind the `#` of a link. Gives the words that stand on both screens. */
  async pair(fragment: string, name: string): Promise<{ machine: string; role: string; words: string }> {
    const link = pairingLink(fragment)
    if (!link) throw new Unsealable('This is not a pairing link. Copy it again.')
    if (this.joining?.fragment !== fragment) {
      const own = await newKeys()
      this.joining = { fragment, own, ...(await beginPairing(link, own, name)) }
    }
    const { own, offer, answered } = this.joining
    const { bond, point, role, words } = await answered(sealedIn(await this.ask({ do: 'sealed', machine: link.machine, session: null, sealed: offer })))
    await this.store.put({ machine: link.machine, privateKey: own.privateKey, point: own.point, machinePoint: point, role, pairedAt: Date.now() })
    this.joining = null
    delete this.generations[link.machine]
    this.know(link.machine, bond)
    return { machine: link.machine, role, words }
  }

  async forget(machine: string): Promise<void> {
    await this.store.drop(machine)
    this.machines.delete(machine)
    delete this.generations[machine]
    writeStoredSoon('sealed.machines', () => this.generations)
  }

  /**
   * What is inside, in the order in which it is to be shown: often one, sometimes none, because it waits or was
   * shown before. Nothing (`null`) if this browser is not paired with the machine. Throws if it is not to be believed.
   */
  async open(frame: SealedFrame): Promise<OpenedFrame[] | null> {
    if (frame.on === 'sealedReply') return [await this.reply(frame)]
    const known = this.machines.get(identityOf(frame.machine))
    if (!known) return null
    if (frame.on === 'key') return this.key(known, frame)
    const generation = generationOf(frame.sealed)
    const newest = known.keys?.generation ?? 0
    if (generation > newest) return hold(known.early, frame)
    if (generation < newest) throw new Unsealable('The message was encrypted before a device was revoked.')
    return this.content(known, frame)
  }

  /** What is sent instead of a request. What was asked first is sealed first. */
  seal(machine: string, session: string | null, request: Request, id: number): Promise<SealedRequest> {
    const sealed = this.sealing.then(async () => {
      const known = this.machines.get(identityOf(machine))
      if (!known) throw new Unsealable('This browser is not paired with the machine.')
      const lane = await (known.lanes.get(machine) ?? this.begin(known, machine, session))
      const { counter, sealed } = await lane.seal((counter) => JSON.stringify({ id: counter, ...request }))
      this.waiting.set(id, { machine, lane, counter })
      return { do: 'sealed' as const, machine, session, sealed }
    })
    this.sealing = sealed.catch(() => {})
    return sealed
  }

  /** A sealed request was answered in the clear, or never: whether it was done is not known, and the next one begins anew. */
  lost(id: number): void {
    const call = this.waiting.get(id)
    this.waiting.delete(id)
    if (call) this.machines.get(identityOf(call.machine))?.lanes.delete(call.machine)
  }

  private know(machine: string, bond: Bond): void {
    this.machines.set(machine, { bond, keys: null, lanes: new Map(), early: [] })
    this.generations[machine] ??= 0
    writeStoredSoon('sealed.machines', () => this.generations)
  }

  private begin(known: PairedMachine, machine: string, session: string | null): Promise<Lane> {
    const lane = (async () => {
      const { ask, answered } = await known.bond.askLane()
      return answered(sealedIn(await this.ask({ do: 'sealed', machine, session, sealed: ask })))
    })()
    known.lanes.set(machine, lane)
    // Who comes next tries again.
    lane.catch(() => { if (known.lanes.get(machine) === lane) known.lanes.delete(machine) })
    return lane
  }

  private async reply({ re, sealed }: Extract<HubTold, { on: 'sealedReply' }>): Promise<OpenedFrame> {
    const call = this.waiting.get(re)
    // Answers to what is not a request of the page: who asked knows how to check them.
    if (!call) return { re, ok: { is: 'sealed', sealed } }
    this.waiting.delete(re)
    const { counter, text } = await call.lane.open(sealed)
    if (counter !== call.counter) throw new Unsealable('The reply belongs to another request.')
    const { ok, error } = JSON.parse(text) as { ok?: unknown; error?: unknown }
    return { re, ok, error }
  }

  private async key(known: PairedMachine, frame: Extract<HubTold, { on: 'key' }>): Promise<OpenedFrame[]> {
    const { generation } = frame
    const { machine } = known.bond
    if (frame.device !== known.bond.id || generation < Math.max(known.keys?.generation ?? 0, this.generations[machine] ?? 0)) return []
    known.keys = await known.bond.unwrap(generation, frame.key)
    this.generations[machine] = generation
    writeStoredSoon('sealed.machines', () => this.generations)
    const inside: OpenedFrame[] = []
    for (const early of known.early.splice(0)) inside.push(...((await this.open(early).catch(() => null)) ?? []))
    return inside
  }

  private async content(known: PairedMachine, frame: SealedView | SealedCard): Promise<OpenedFrame[]> {
    const keys = known.keys
    if (!keys) throw new Unsealable('The key for this message is missing.')
    if (frame.on === 'sealedCard') {
      const { session, state, asks, updatedAt, branch } = frame
      // What is kept of a session was sealed for that session; it is shown as what it was, and waits for nobody.
      const sealedFor = branch?.of ?? session
      const card = JSON.parse(await keys.open(sealedFor, { card: { state, asks, updatedAt } }, frame.sealed)) as Card
      if (card.session !== sealedFor) throw new Unsealable('The card belongs to another session.')
      if (updatedAt < (this.seen.get(session)?.updatedAt ?? 0)) return []
      this.saw(session, { updatedAt })
      const shown: Card = branch ? { ...card, session, branch, asks: [], state: card.state === 'failed' ? 'failed' : 'done' } : card
      return [{ on: 'cards', cards: [shown], gone: [], older: null }]
    }
    const { session, from, upto, of = session } = frame
    const view = JSON.parse(await keys.open(of, { view: { from, upto } }, frame.sealed)) as View
    if (view.session !== of || view.upto !== upto) throw new Unsealable('The view belongs to another session.')
    return this.view(session, from, { on: 'view', ...view, session })
  }

  /** Views continue each other. One that is older than what is shown is not shown, and one that leaves something out is asked for whole. */
  private view(session: string, from: number | null, view: Told & { on: 'view' }): OpenedFrame[] {
    const place = this.watching.get(session)
    if (from !== null && (!place || from > place.at)) {
      void this.ask({ do: 'watch', session, after: null }).catch(() => {})
      return []
    }
    const now = place ?? { at: 0, behind: [] }
    if (view.upto < now.at) return []
    if (from === null) now.behind = []
    if (now.behind.length >= HELD_MAX) {
      // It does not come to an end: the next one is asked for whole.
      this.watching.delete(session)
      return []
    }
    now.at = view.upto
    this.watching.set(session, now)
    now.behind.push(view)
    if (now.at < (this.seen.get(session)?.upto ?? 0)) return []
    this.saw(session, { upto: now.at })
    return now.behind.splice(0)
  }

  private saw(session: string, what: Partial<ShownPosition>): void {
    const seen = { upto: 0, updatedAt: 0, ...this.seen.get(session), ...what }
    this.seen.delete(session)
    this.seen.set(session, seen)
    for (const oldest of this.seen.keys()) {
      if (this.seen.size <= SEEN_MAX) break
      this.seen.delete(oldest)
    }
    writeStoredSoon('sealed.seen', () => this.merged())
  }

  /** With what other tabs have seen meanwhile. */
  private merged(): Record<string, ShownPosition> {
    for (const [session, other] of Object.entries(readStored<Record<string, ShownPosition>>('sealed.seen') ?? {})) {
      const own = this.seen.get(session)
      if (own) this.seen.set(session, { upto: Math.max(own.upto, other.upto), updatedAt: Math.max(own.updatedAt, other.updatedAt) })
      else if (this.seen.size < SEEN_MAX) this.seen.set(session, other)
    }
    return Object.fromEntries(this.seen)
  }
}

function hold<T>(held: T[], one: T): [] {
  if (held.length >= HELD_MAX) held.shift()
  held.push(one)
  return []
}

/** The sealed answer to something that is no request of the page. */
function sealedIn(answer: unknown): string {
  const { sealed } = (answer ?? {}) as { sealed?: unknown }
  if (typeof sealed !== 'string') throw new Unsealable('The machine did not answer. Try again.')
  fromText(sealed)
  return sealed
}
