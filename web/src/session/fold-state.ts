// What a reader has opened or closed by hand. It outlives the rows' nodes, which come and go.

import { signal, type Signal } from '@preact/signals'

const OPENED_MAX = 500
const opened = new Map<string, Signal<boolean | null>>()

/** Whether somebody opened (`true`) or closed (`false`) this; nothing if nobody touched it. */
export function foldStateOf(session: string, thing: string): Signal<boolean | null> {
  const key = `${session} ${thing}`
  let found = opened.get(key)
  if (!found) {
    found = signal<boolean | null>(null)
    if (opened.size >= OPENED_MAX) {
      const oldest = opened.keys().next().value
      if (oldest !== undefined) opened.delete(oldest)
    }
    opened.set(key, found)
  }
  return found
}
