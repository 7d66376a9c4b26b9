// What is wrong with the machine, as the server tells it: its store or its permission rules cannot be used.

import { signal } from '@preact/signals'
import { onMessage } from './connection'

/** Whole sentences; none while nothing is wrong. */
export const faults = signal<string[]>([])

export function startFaults(): void {
  onMessage((told) => {
    if (told.on === 'hello') faults.value = []
    else if (told.on === 'faults') faults.value = told.faults
  })
}
