// Who can come in, and who knocks: told to owners by the server, for every screen that shows it.

import { signal } from '@preact/signals'
import { sendRequest, hello, onConnected, onMessage } from '../lib/connection'
import type { Device, Knock } from '../wire'

/** Nothing until the server has told it; devices that are no owners are never told. */
export const devices = signal<readonly Device[] | null>(null)
export const knocks = signal<readonly Knock[]>([])

export function startPairedDevices(): void {
  onMessage((told) => {
    if (told.on === 'hello' && told.role !== 'owner') setDevices(null, [])
    if (told.on === 'devices') setDevices(told.devices, told.knocks)
  })
  // Owners are told of changes; who knocked before they came is asked for.
  onConnected(() => { if (hello.value?.role === 'owner') loadDevices().catch(() => {}) })
}

function setDevices(list: readonly Device[] | null, waiting: readonly Knock[]): void {
  devices.value = list
  knocks.value = waiting
}

export async function loadDevices(): Promise<void> {
  const told = await sendRequest({ do: 'devices' })
  setDevices(told.devices, told.knocks)
}
