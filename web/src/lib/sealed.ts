// Sealed machines: what the hub passes on and cannot read, opened here if this device has the key.
//
// Opening takes time, and what follows must not overtake it; so sealed frames wait in one line and come out
// of it as the frames that they hold. What cannot be opened becomes a locked card, which says why. The
// cryptography itself is loaded when the first sealed machine is seen.

import { signal } from '@preact/signals'
import type { Card, HubTold, Request } from '../wire'
import { cards } from './board'
import { machineOf, machines } from './hub'
import { type Asked, type Heard, onTold, Refused, sealWith, settle, told } from './line'
import { identityOf, isPaired, sealedBy } from './once-sealed'

/** Why something cannot be read here. */
export type Lock =
  /** This device has no key of the machine. */
  | 'unpaired'
  /** It has one, and it does not fit: what came was changed, moved, or is of another key. */
  | 'unreadable'

/** What is inside: something told, or the answer to a request. */
export type Inside = Heard | { re: number; ok?: unknown; error?: unknown }

/** What opens and seals; see `seal-here.ts`. */
export interface Seals {
  /** Gives what is inside, in order; nothing (`null`) if this device is not paired. Throws if it is not to be believed. */
  open(frame: Sealed): Promise<Inside[] | null>
  /** Gives what is sent instead. Throws if this device is not paired. */
  seal(machine: string, session: string | null, request: Request, id: number): Promise<Asked>
  lost(id: number): void
  pair(fragment: string, name: string): Promise<{ machine: string; role: string; words: string }>
  paired(): string[]
  forget(machine: string): Promise<void>
}

export type Sealed = Extract<HubTold, { sealed: string } | { on: 'key' }>

const locks = signal<ReadonlyMap<string, Lock>>(new Map())

/** Why a session cannot be read here; nothing if it can. */
export function lockOf(session: string): Lock | null {
  return locks.value.get(session) ?? null
}

export function isSealed(session: string): boolean {
  return sealedBy(session) !== null || (machineOf(session)?.sealed ?? false)
}

let seals: Promise<Seals> | null = null
let load: () => Promise<Seals> = () => Promise.reject(new Error('This page cannot open what is sealed.'))
let line: Promise<void> = Promise.resolve()
/** Cards that were opened before the list came; the first list replaces what there was. */
let early: Map<string, Card> | null = new Map()

const loaded = () => (seals ??= load().catch((error: unknown) => { seals = null; throw error }))

/** Pairs this device by what stands behind the `#` of a link. */
export async function pair(fragment: string, name: string): ReturnType<Seals['pair']> {
  return (await loaded()).pair(fragment, name)
}

/** This device opens nothing any more: whoever signs out leaves no key behind. */
export async function forgetKeys(): Promise<void> {
  if (!machines.peek().some(({ sealed }) => sealed)) return
  const here = await loaded()
  for (const machine of here.paired()) await here.forget(machine)
}

export function startSealed(given: () => Promise<Seals>): void {
  load = given
  sealWith({ seal: sealing, lost: (id) => void seals?.then((here) => here.lost(id)) })
  onTold((frame) => {
    if (frame.on === 'hello') early = new Map()
    else if (frame.on === 'cards' && early) {
      const waiting = [...early.values()]
      early = null
      if (waiting.length > 0) queueMicrotask(() => put(waiting))
    } else if (frame.on === 'sealedCard' || frame.on === 'sealedView' || frame.on === 'sealedReply' || frame.on === 'key') {
      line = line.then(() => open(frame)).catch((error: unknown) => console.error(error))
    }
  })
}

async function open(frame: Sealed): Promise<void> {
  const session = 'session' in frame ? frame.session : null
  let inside: Inside[] | null = null
  let lock: Lock | null = null
  try {
    inside = await (await loaded()).open(frame)
    if (inside === null) lock = 'unpaired'
  } catch {
    lock = 'unreadable'
  }
  if (frame.on === 'sealedReply' && inside === null) return settle({ re: frame.re, error: { code: 'failed', message: UNOPENED } }, false)
  // Opened, and not to be shown: its key is not here, or it is older than what was shown. Once is enough to say so.
  const isNothing = inside?.length === 0 && frame.on === 'sealedCard' && !cards.peek().has(frame.session)
  if (session !== null && frame.on !== 'sealedReply') setLock(session, isNothing ? 'unreadable' : lock)
  if ((inside === null || isNothing) && frame.on === 'sealedCard') put([lockedCard(frame)])
  for (const one of inside ?? []) take(one)
}

const UNOPENED = 'The machine’s answer could not be opened with this device’s key. Pair this device again.'

function take(inside: Inside): void {
  if (!('on' in inside)) return settle(inside as Parameters<typeof settle>[0], true)
  if (inside.on !== 'cards') return told(inside)
  for (const { session } of inside.cards) setLock(session, null)
  put(inside.cards)
}

function put(changed: Card[]): void {
  if (early) for (const card of changed) early.set(card.session, card)
  else told({ on: 'cards', cards: changed, gone: [], older: null })
}

/** As much of a card as everybody may know. */
function lockedCard({ session, state, updatedAt }: Extract<HubTold, { on: 'sealedCard' }>): Card {
  return { session, title: 'Sealed session', folder: '', source: '', createdAt: updatedAt, updatedAt, state, line: null, costUsd: null, asks: [] }
}

function setLock(session: string, lock: Lock | null): void {
  if ((locks.peek().get(session) ?? null) === lock) return
  const next = new Map(locks.peek())
  if (lock === null) next.delete(session)
  else next.set(session, lock)
  locks.value = next
}

/** Requests that a hub answers itself, though they name a session: they say nothing of what is in it. */
const PLAIN = new Set<Asked['do']>(['watch', 'unwatch', 'looking', 'sessions', 'share', 'shares', 'unshare', 'forgetMachine'])

function sealing(request: Asked, id: number): Promise<Asked> | null {
  if (PLAIN.has(request.do) || request.do === 'sealed') return null
  const session = 'session' in request ? request.session : null
  const machine = request.do === 'at' ? request.machine : session === null ? null : ownerOf(session)
  if (machine === null || !(isPaired(machine) || machines.peek().some(({ id, sealed }) => id === machine && sealed))) return null
  const inner = request.do === 'at' ? request.request : (request as Request)
  return sealFor(machine, session, inner, id)
}

/** The machine that has the session. Of a sealed one it is the one that sealed it, whatever the hub says. */
function ownerOf(session: string): string | null {
  const [once, named] = [sealedBy(session), machineOf(session)?.id ?? null]
  if (once === null) return named
  return named !== null && identityOf(named) === identityOf(once) ? named : once
}

async function sealFor(machine: string, session: string | null, request: Request, id: number): Promise<Asked> {
  try {
    return await (await loaded()).seal(machine, session, request, id)
  } catch {
    throw new Refused('forbidden', 'This machine is sealed, and this device has no key for it. Pair this device with the machine first.')
  }
}
