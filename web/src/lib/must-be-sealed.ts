// What this browser knows to be sealed, whatever the hub says of it.
//
// The hub says which machine has a session and whether it is sealed; it may be wrong in one direction only. Who was
// paired with a machine, or has seen a session sealed, neither sends to it nor believes of it anything in the clear.
// What a session told in the clear before it was known to be sealed is remembered, so that it can be taken back.

import type { Card, MachineView } from '../wire'
import { machineOf } from './hub-state'
import { readStored } from './browser-storage'
import { identityOf } from './base-machine-id'

const pairedOnce = new Set<string>()
const sealedOnce = new Set<string>()
/** Sessions of which something in the clear is shown. */
const inTheClear = new Set<string>()

/** Takes up what was known at the last visit, and what was kept from it in the clear. */
export function startSealedSessions(shown: Iterable<string>): void {
  for (const session of Object.keys(readStored<object>('sealed.seen') ?? {})) sealedOnce.add(session)
  for (const machine of Object.keys(readStored<object>('sealed.machines') ?? {})) pairedOnce.add(machine)
  for (const session of shown) inTheClear.add(session)
}

export function rememberPaired(machine: string): void {
  pairedOnce.add(identityOf(machine))
}

export function rememberSealed(session: string): void {
  sealedOnce.add(session)
}

export function mustBeSealed(session: string | null, machine: MachineView | undefined = machineOf(session ?? '')): boolean {
  return (machine !== undefined && (machine.sealed || pairedOnce.has(identityOf(machine.id)))) || (session !== null && sealedOnce.has(session))
}

/** Whether something of a session that came in the clear may be shown. */
export function mayShowUnsealed(session: string): boolean {
  if (mustBeSealed(session)) return false
  inTheClear.add(session)
  return true
}

/** Those cards that may have come in the clear. */
export function unsealedCards(cards: Card[]): Card[] {
  return cards.filter(({ session }) => mayShowUnsealed(session))
}

/** Sessions that are shown in the clear and turned out to be sealed; each is given once. */
export function sessionsToHide(): string[] {
  const found = [...inTheClear].filter((session) => mustBeSealed(session))
  for (const session of found) inTheClear.delete(session)
  return found
}
