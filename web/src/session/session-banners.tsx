// What is said above a session at a hub: that its machine is away, that it is sealed, and how one came to see it.

import type { MachineView } from '../wire'
import { hubVisit, offlineMachineOf, isGuest, machineOf } from '../lib/hub-state'
import { hello, clockSkew } from '../lib/connection'
import { lockOf } from '../lib/sealed-connection'
import { clockTime, visible } from '../lib/format'
import { MachineName } from '../list/machines'
import { roleLabel } from '../settings/roles'
import { Icon } from '../ui/icons'

export function offlineText(machine: MachineView): string {
  return `${visible(machine.name || machine.id)} has been offline since ${clockTime(machine.seenAt - clockSkew.value)}. You can send when it is back; your draft is kept.`
}

export function OfflineBanner({ session }: { session: string }) {
  const machine = offlineMachineOf(session)
  if (!machine) return null
  return (
    <p class="note-bar away" role="status">
      <Icon name="away" size={18} />
      <span><MachineName machine={machine} /> has been offline since {clockTime(machine.seenAt - clockSkew.value)}. You see its last known state. You can send when it is back; your draft is kept.</span>
    </p>
  )
}

/** What cannot be read says why, and what helps. */
export function SealedBanner({ session }: { session: string }) {
  const lock = lockOf(session)
  const machine = machineOf(session)
  if (lock === null) return null
  return (
    <div class="locked" role="status">
      <Icon name="lock" size={28} />
      <h2>{lock === 'unpaired' ? 'Sealed: pair this device' : 'Sealed: this device’s key does not work'}</h2>
      <p>{machine ? <MachineName machine={machine} /> : 'This machine'} encrypts what it sends end to end, so that the hub cannot read it. {lock === 'unpaired' ? 'This device has no key for it yet.' : 'This device’s key cannot open it: the device was revoked, or the data was changed on the way.'}</p>
      <p class="soft">Run <code>ropewalk pair</code> on the machine. Scan its code with this device, or open its link here.</p>
      <p><a class="button primary" href="/pair">Pair this device</a></p>
    </div>
  )
}

/** Who came by a link knows what they may do, and for how long. */
export function GuestBanner() {
  const here = hubVisit.value
  if (!isGuest.value || !here) return null
  return (
    <p class="note-bar" role="status">
      <Icon name="link" size={18} />
      <span>You joined by a link, as {roleLabel(hello.value?.role ?? 'viewer').toLowerCase()}{here.until !== null && <>, until {clockTime(here.until - clockSkew.value)}</>}.</span>
    </p>
  )
}
