// What was sealed once is sealed for ever in this browser, whatever a hub says later.
//
// A hub that calls a sealed machine an open one would have requests sent to it in the clear, and could show what it
// likes in a session that people know. So machines that this browser is paired with, and sessions that it has opened,
// are remembered here, with what is loaded first: the keys themselves come later.

import type { Card } from '../wire'
import { kept } from './keep'
import type { Heard } from './line'

/** How far a sealed session was shown here, and whose it is. */
export interface Seen { machine: string; upto: number; updatedAt: number }

export const SEEN = 'sealed.seen'
/** By machine: the generation of its newest key that was seen. */
export const MACHINES = 'sealed.machines'

let sessions: Map<string, string> | null = null
let machines: Set<string> | null = null

const known = () => (sessions ??= new Map(Object.entries(kept<Record<string, Seen>>(SEEN) ?? {}).map(([session, { machine }]) => [session, machine])))
const paired = () => (machines ??= new Set(Object.keys(kept<Record<string, number>>(MACHINES) ?? {})))

/** Several processes of one machine have names of their own at a hub, and one key. */
export function identityOf(machine: string): string {
  return /^([0-9a-f]{32})-\d+$/.exec(machine)?.[1] ?? machine
}

/** The machine that sealed this session when it was opened here. */
export function sealedBy(session: string): string | null {
  return known().get(session) ?? null
}

export function isPaired(machine: string): boolean {
  return paired().has(identityOf(machine))
}

export function noteSession(session: string, machine: string): void {
  known().set(session, machine)
}

export function notePaired(machine: string, is: boolean): void {
  if (is) paired().add(identityOf(machine))
  else paired().delete(identityOf(machine))
}

/** What came in the clear, without what can only come sealed; nothing if nothing is left. */
export function screened(frame: Heard): Heard | null {
  if (frame.on === 'view') return sealedBy(frame.session) === null ? frame : null
  if (frame.on !== 'cards') return frame
  return { ...frame, cards: open(frame.cards) }
}

/** Those cards that may come in the clear. */
export function open(cards: Card[]): Card[] {
  return cards.every(({ session }) => sealedBy(session) === null) ? cards : cards.filter(({ session }) => sealedBy(session) === null)
}
