// Sealed machines: what the hub passes on and cannot read, opened here if this device has the key.
//
// Opening takes time, and what follows must not overtake it; so sealed frames wait in one line and come out
// of it as the frames that they hold. What cannot be opened becomes a locked card, which says why. The
// cryptography itself is loaded when the first sealed machine is seen.

import { signal } from '@preact/signals'
import type { Card, HubTold, MachineView, Request } from '../wire'
import { machineOf, machines } from './hub'
import { type Asked, type Heard, onTold, Refused, sealWith, settle, told } from './line'

/** Why something cannot be read here. */
export type Lock =
  /** This device has no key of the machine. */
  | 'unpaired'
  /** It has one, and it does not fit: what came was changed, moved, or is of another key. */
  | 'unreadable'

/** What opens and seals; see `seal.ts`. */
export interface Seals {
  /** Gives what is inside; nothing if this device has no key for it. Throws if the key does not fit. */
  open(frame: Sealed): Promise<Heard | { re: number; ok?: unknown; error?: unknown } | null>
  /** Gives what is sent instead. Throws if this device has no key. */
  seal(machine: string, session: string | null, request: Request, id: number): Promise<Asked>
}

export type Sealed = Extract<HubTold, { sealed: string } | { on: 'key' }>

const locks = signal<ReadonlyMap<string, Lock>>(new Map())

/** Why a session cannot be read here; nothing if it can. */
export function lockOf(session: string): Lock | null {
  return locks.value.get(session) ?? null
}

export function isSealed(session: string): boolean {
  return machineOf(session)?.sealed ?? false
}

let seals: Promise<Seals> | null = null
let load: () => Promise<Seals> = () => Promise.reject(new Error('This page cannot open what is sealed.'))
let line: Promise<void> = Promise.resolve()
/** Cards that were opened before the list came; the first list replaces what there was. */
let early: Map<string, Card> | null = new Map()

const loaded = () => (seals ??= load().catch((error: unknown) => { seals = null; throw error }))

export function startSealed(given: () => Promise<Seals>): void {
  load = given
  sealWith(sealing)
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
  let inside: Awaited<ReturnType<Seals['open']>> = null
  let lock: Lock | null = 'unpaired'
  try {
    inside = await (await loaded()).open(frame)
    if (inside) lock = null
  } catch {
    lock = 'unreadable'
  }
  if (frame.on === 'sealedReply') return reply(frame.re, inside)
  if (frame.on === 'key' || session === null) return
  setLock(session, lock)
  if (inside && 'on' in inside && inside.on === 'cards') put(inside.cards)
  else if (inside && 'on' in inside) told(inside)
  else if (frame.on === 'sealedCard') put([lockedCard(frame)])
}

function reply(re: number, inside: Awaited<ReturnType<Seals['open']>>): void {
  if (inside && 're' in inside && !('on' in inside)) settle({ ...(inside as Parameters<typeof settle>[0]), re })
  else settle({ re, error: { code: 'failed', message: 'The machine’s answer could not be opened with this device’s key. Pair this device again.' } })
}

function put(cards: Card[]): void {
  if (early) for (const card of cards) early.set(card.session, card)
  else told({ on: 'cards', cards, gone: [], older: null })
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
  const machine = request.do === 'at' ? machines.peek().find((one) => one.id === request.machine) : session === null ? undefined : machineOf(session)
  if (!machine?.sealed) return null
  const inner = request.do === 'at' ? request.request : (request as Request)
  return sealFor(machine, session, inner, id)
}

async function sealFor(machine: MachineView, session: string | null, request: Request, id: number): Promise<Asked> {
  try {
    return await (await loaded()).seal(machine.id, session, request, id)
  } catch {
    throw new Refused('forbidden', 'This machine is sealed, and this device has no key for it. Pair this device with the machine first.')
  }
}
