// Machines at a hub: on cards, and as a row above the list that shows the sessions of one of them.

import type { MachineView } from '../wire'
import { machineOf, machines, machineFilter } from '../lib/hub-state'
import { clockSkew } from '../lib/connection'
import { age, clockTime, visible } from '../lib/format'

/** A name that somebody else chose: shown as it is, with nothing hidden in it. */
export function MachineName({ machine }: { machine: MachineView }) {
  return <bdi>{visible(machine.name || machine.id)}</bdi>
}

/** Never the colour alone: the word is beside it, or read out. */
export function MachineDot({ machine }: { machine: MachineView }) {
  return <span class={machine.here ? 'machine-dot is-here' : 'machine-dot'} aria-hidden="true" />
}

export function machineStatus(machine: MachineView): string {
  return machine.here ? 'online' : `offline since ${clockTime(machine.seenAt - clockSkew.value)}`
}

/** Where a session runs, on its card. */
export function SessionMachine({ session }: { session: string }) {
  const machine = machineOf(session)
  if (!machine) return null
  return (
    <span class="card-machine soft" title={machineStatus(machine)}>
      <MachineDot machine={machine} /><MachineName machine={machine} />
      {!machine.here && <span class="card-away">offline {age(machine.seenAt)}</span>}
      {machine.here && <span class="off-screen">, online</span>}
    </span>
  )
}

/** One of several machines, or all. With one there is nothing to choose. */
export function MachineFilter() {
  if (machines.value.length < 2) return null
  const chosen = machineFilter.value
  return (
    <div class="machine-filter" role="group" aria-label="Machines">
      <button type="button" aria-pressed={chosen === null} onClick={() => { machineFilter.value = null }}>All</button>
      {machines.value.map((machine) => (
        <button key={machine.id} type="button" title={machineStatus(machine)} aria-pressed={chosen === machine.id} onClick={() => { machineFilter.value = chosen === machine.id ? null : machine.id }}>
          <MachineDot machine={machine} /><MachineName machine={machine} /><span class="off-screen">, {machineStatus(machine)}</span>
        </button>
      ))}
    </div>
  )
}
