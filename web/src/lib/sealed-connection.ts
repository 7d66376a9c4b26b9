// Sealed machines: what the hub passes on and cannot read, opened here if this device has the key.
//
// Opening takes time, and what follows must not overtake it; so sealed frames wait in one line and come out
// of it as the frames that they hold. What cannot be opened becomes a locked card, which says why. The
// cryptography itself is loaded when the first sealed machine is seen.

import { signal } from '@preact/signals'
import type { Card, Hello, HubTold, MachineView, Request } from '../wire'
import { cards, dropCards } from './board'
import { isAtHub, machineOf, machines } from './hub-state'
import { removeStored } from './browser-storage'
import { type AnyRequest, type ServerMessage, hello, ConnectionLost, onMessage, RequestRefused, setSealing, settleRequest, deliver } from './connection'
import { unsealedCards, mayShowUnsealed, mustBeSealed, startSealedSessions, sessionsToHide, rememberPaired, rememberSealed } from './must-be-sealed'
import { reloadRows, storedRowsSession } from './watched-session'

/** Why something cannot be read here. */
export type Lock =
  /** This device has no key of the machine. */
  | 'unpaired'
  /** It has one, and it does not fit: what came was changed, moved, or is of another key. */
  | 'unreadable'

/** What is inside: something told, or the answer to a request. */
export type OpenedFrame = ServerMessage | { re: number; ok?: unknown; error?: unknown }

/** What opens and seals; see `seal-browser.ts`. */
export interface Sealer {
  /** Gives what is inside, in order; nothing (`null`) if this device is not paired. Throws if it is not to be believed. */
  open(frame: SealedFrame): Promise<OpenedFrame[] | null>
  /** Gives what is sent instead. Throws if this device is not paired. */
  seal(machine: string, session: string | null, request: Request, id: number): Promise<AnyRequest>
  lost(id: number): void
  pair(fragment: string, name: string): Promise<{ machine: string; role: string; words: string }>
  paired(): Promise<string[]>
  forget(machine: string): Promise<void>
}

export type SealedFrame = Extract<HubTold, { sealed: string } | { on: 'key' }>

const locks = signal<ReadonlyMap<string, Lock>>(new Map())

/** Why a session cannot be read here; nothing if it can. */
export function lockOf(session: string): Lock | null {
  return locks.value.get(session) ?? null
}

let seals: Promise<Sealer> | null = null
let load: () => Promise<Sealer> = () => Promise.reject(new Error('This page cannot decrypt sealed sessions. Reload it.'))
let line: Promise<void> = Promise.resolve()
/** Cards that were opened before the list came; the first list replaces what there was. */
let early: Map<string, Card> | null = new Map()

const loaded = () => (seals ??= load().catch((error: unknown) => { seals = null; throw error }))

/** Pairs this device by what stands behind the `#` of a link. */
export async function pairWithMachine(fragment: string, name: string): ReturnType<Sealer['pair']> {
  const paired = await (await loaded()).pair(fragment, name)
  rememberPaired(paired.machine)
  takeBack()
  return paired
}

/** This device opens nothing any more: whoever signs out leaves no key behind. Only the keys themselves say whether there are any. */
export async function forgetKeys(): Promise<void> {
  const here = await loaded()
  for (const machine of await here.paired()) await here.forget(machine)
  removeStored('sealed.machines')
  removeStored('sealed.seen')
}

export function startSealed(given: () => Promise<Sealer>): void {
  load = given
  startSealedSessions([...cards.peek().keys(), ...storedRowsSession()])
  setSealing({ seal: sealing, lost: (id) => void seals?.then((here) => here.lost(id)), believed, mustBeSealed: (request) => !isForHub(request) && mustBeSealed(...placeOf(request)) })
  onMessage((frame) => {
    if (frame.on === 'hello') early = new Map()
    else if (frame.on === 'machines') {
      countedFor = hello.peek()
      takeBack()
      const all = waiting
      waiting = []
      for (const counted of all) counted()
    }
    else if (frame.on === 'cards' && early) {
      const waiting = [...early.values()]
      early = null
      if (waiting.length > 0) queueMicrotask(() => put(waiting))
    } else if (frame.on === 'sealedCard' || frame.on === 'sealedView' || frame.on === 'sealedReply' || frame.on === 'key') {
      line = line.then(() => open(frame)).catch((error: unknown) => console.error(error))
    }
  })
}

async function open(frame: SealedFrame): Promise<void> {
  const session = 'session' in frame ? frame.session : null
  if (session !== null) {
    rememberSealed(session)
    takeBack()
  }
  let inside: OpenedFrame[] | null = null
  let lock: Lock | null = null
  try {
    inside = await (await loaded()).open(frame)
    if (inside === null) lock = 'unpaired'
  } catch {
    lock = 'unreadable'
  }
  if (frame.on === 'sealedReply' && inside === null) return settleRequest({ re: frame.re, error: { code: 'failed', message: UNOPENED } }, false)
  // Opened, and not to be shown: its key is not here, or it is older than what was shown. Once is enough to say so.
  const isNothing = inside?.length === 0 && frame.on === 'sealedCard' && !cards.peek().has(frame.session)
  if (session !== null && frame.on !== 'sealedReply') setLock(session, isNothing ? 'unreadable' : lock)
  if ((inside === null || isNothing) && frame.on === 'sealedCard') put([lockedCard(frame)])
  for (const one of inside ?? []) take(one)
}

const UNOPENED = 'Could not decrypt the machine’s answer with this device’s key. Pair this device again.'

function take(inside: OpenedFrame): void {
  if (!('on' in inside)) {
    const reply = inside as Parameters<typeof settleRequest>[0]
    // What is still sealed was not opened: it answers only who knows how to check it.
    return settleRequest(reply, (reply.ok as { is?: unknown } | null | undefined)?.is !== 'sealed')
  }
  if (inside.on !== 'cards') return deliver(inside)
  for (const { session } of inside.cards) setLock(session, null)
  put(inside.cards)
}

function put(changed: Card[]): void {
  if (early) for (const card of changed) early.set(card.session, card)
  else deliver({ on: 'cards', cards: changed, gone: [], older: null })
}

/** As much of a card as everybody may know. */
function lockedCard({ session, state, updatedAt, branch }: Extract<HubTold, { on: 'sealedCard' }>): Card {
  const card = { session, title: 'Sealed session', folder: '', source: '', createdAt: updatedAt, updatedAt, line: null, costUsd: null, asks: [] }
  return branch ? { ...card, state: 'done', branch } : { ...card, state }
}

function setLock(session: string, lock: Lock | null): void {
  if ((locks.peek().get(session) ?? null) === lock) return
  const next = new Map(locks.peek())
  if (lock === null) next.delete(session)
  else next.set(session, lock)
  locks.value = next
}

/** Requests that a hub answers itself: they say nothing of what is in a session. */
const PLAIN = new Set<AnyRequest['do']>(['watch', 'unwatch', 'looking', 'sessions', 'share', 'shares', 'unshare', 'forgetMachine', 'sealed'])

/** The greeting after which the hub has told its machines. */
let countedFor: Hello | null = null
let waiting: (() => void)[] = []

function sealing(request: AnyRequest, id: number): Promise<AnyRequest> | null {
  if (isForHub(request)) return null
  // Before a connection's machines are told nobody knows which of them are sealed, and nothing is sent to any. Where there
  // is no hub none are told; a hub that poses as no hub gets nothing of what is known to be sealed.
  if (!isAtHub() || countedFor === hello.peek()) return sealNow(request, id)
  return new Promise<void>((counted) => waiting.push(counted)).then(() => sealNow(request, id) ?? request)
}

/** It is for the server itself, and names nothing that a machine behind it has. */
function isForHub(request: AnyRequest): boolean {
  // What a hub keeps of a session from before its machine was put back is on no machine.
  if (request.do === 'delete' && cards.peek().get(request.session)?.branch) return true
  return PLAIN.has(request.do) || (request.do !== 'at' && !('session' in request && request.session !== null))
}

/** The session that a request names, and the machine that it is for. */
function placeOf(request: AnyRequest): [string | null, MachineView | undefined] {
  if (request.do === 'at') return [null, machines.peek().find((one) => one.id === request.machine)]
  const session = 'session' in request ? request.session : null
  return [session, machineOf(session ?? '')]
}

function believed(frame: ServerMessage): ServerMessage | null {
  if (frame.on === 'view') return mayShowUnsealed(frame.session) ? frame : null
  return frame.on === 'cards' ? { ...frame, cards: unsealedCards(frame.cards) } : frame
}

/** What came in the clear of sessions that turned out to be sealed is not shown any longer. */
function takeBack(): void {
  const sessions = sessionsToHide()
  if (sessions.length === 0) return
  dropCards(sessions)
  for (const session of sessions) reloadRows(session)
}

function sealNow(request: AnyRequest, id: number): Promise<AnyRequest> | null {
  const [session, machine] = placeOf(request)
  if (!machine?.sealed) return mustBeSealed(session, machine) ? Promise.reject(new RequestRefused('forbidden', OPENED_UP)) : null
  const inner = request.do === 'at' ? request.request : (request as Request)
  return sealFor(machine, session, inner, id)
}

const OPENED_UP = 'This was sealed, but the hub now says it is not. Nothing was sent. If you changed the machine on purpose, sign out here and sign in again.'

async function sealFor(machine: MachineView, session: string | null, request: Request, id: number): Promise<AnyRequest> {
  try {
    return await (await loaded()).seal(machine.id, session, request, id)
  } catch (error) {
    if (error instanceof RequestRefused || error instanceof ConnectionLost) throw error
    throw new RequestRefused('forbidden', 'This machine is sealed, and this device has no key for it. Pair this device with the machine first.')
  }
}
