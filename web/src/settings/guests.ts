// Who can come in, and who knocks: told to owners by the server, for every screen that shows it.

import { signal } from '@preact/signals'
import { ask, hello, onLive, onTold } from '../lib/line'
import type { Device, Knock } from '../wire'

/** Nothing until the server has told it; devices that are no owners are never told. */
export const devices = signal<readonly Device[] | null>(null)
export const knocks = signal<readonly Knock[]>([])

export function startGuests(): void {
  onTold((told) => {
    if (told.on === 'hello' && told.role !== 'owner') setGuests(null, [])
    if (told.on === 'devices') setGuests(told.devices, told.knocks)
  })
  // Owners are told of changes; who knocked before they came is asked for.
  onLive(() => { if (hello.value?.role === 'owner') loadGuests().catch(() => {}) })
}

function setGuests(list: readonly Device[] | null, waiting: readonly Knock[]): void {
  devices.value = list
  knocks.value = waiting
}

export async function loadGuests(): Promise<void> {
  const told = await ask({ do: 'devices' })
  setGuests(told.devices, told.knocks)
}
