// What is different at a hub: who one is there, and which machines there are.
//
// The same app serves one machine and a hub; which of both it is, the server says right after its greeting.
// At a hub a session belongs to a machine, and a machine that is away can be read and not be asked.

import { computed, effect, signal } from '@preact/signals'
import type { HubTold, MachineView, Request } from '../wire'
import { type AnswerTo, sendRequest, hello, onMessage } from './connection'

export type HubVisit = Omit<Extract<HubTold, { on: 'at' }>, 'on'>

/** Who one is at the hub; nothing where there is no hub. */
export const hubVisit = signal<HubVisit | null>(null)
export const machines = signal<readonly MachineView[]>([])
/** The hub has told its machines at least once since this page was loaded. */
export const machinesLoaded = signal(false)
/** The machine whose sessions alone are listed. */
export const machineFilter = signal<string | null>(null)

/** Whoever came by a link sees one session and nothing else. */
export const isGuest = computed(() => hubVisit.value !== null && hubVisit.value.person === null)

const bySession = computed(() => {
  const found = new Map<string, MachineView>()
  for (const machine of machines.value) for (const session of machine.sessions) found.set(session, machine)
  return found
})

/** The machine that has this session; nothing where there is no hub. */
export function machineOf(session: string): MachineView | undefined {
  return bySession.value.get(session)
}

/** The machine of a session, if it is away: what it shows is old, and nothing can be asked of it. */
export function offlineMachineOf(session: string): MachineView | undefined {
  const machine = machineOf(session)
  return machine && !machine.here ? machine : undefined
}

/** Something that names no session, asked of one machine. */
export function sendToMachine<R extends Request>(machine: string, request: R): Promise<AnswerTo<R>> {
  return sendRequest({ do: 'at', machine, request }) as Promise<unknown> as Promise<AnswerTo<R>>
}

/** A hub has no folder of its own: what is opened is opened on a machine. */
export function isAtHub(): boolean {
  return hubVisit.value !== null || hello.value?.folder === ''
}

/** A session that was just opened on a machine takes so long at most to be known at the hub. */
const KNOWN_MS = 15_000

/** Waits until the hub knows which machine has a session: before that nothing can be asked about it. Gives whether it does. */
export function waitUntilListed(session: string): Promise<boolean> {
  return new Promise((done) => {
    let stop = () => {}
    const end = (found: boolean) => {
      clearTimeout(late)
      done(found)
      // The effect may run before it can be stopped.
      queueMicrotask(() => stop())
    }
    const late = setTimeout(() => end(false), KNOWN_MS)
    stop = effect(() => { if (machineOf(session)) end(true) })
  })
}

export function startHub(): void {
  onMessage((told) => {
    if (told.on === 'at') hubVisit.value = { person: told.person, session: told.session, until: told.until }
    if (told.on !== 'machines') return
    machines.value = told.machines
    machinesLoaded.value = true
    if (!told.machines.some(({ id }) => id === machineFilter.peek())) machineFilter.value = null
  })
}
