// Drafts: what somebody has typed for a session and not sent. They survive a reload.

import { signal, type Signal } from '@preact/signals'
import { writeStored, readStored } from './browser-storage'

const drafts = new Map<string, Signal<string>>()

const key = (session: string) => `draft.${session}`

export function draft(session: string): Signal<string> {
  let found = drafts.get(session)
  if (!found) {
    found = signal(readStored<string>(key(session)) ?? '')
    drafts.set(session, found)
  }
  return found
}

export function setDraft(session: string, text: string): void {
  draft(session).value = text
  writeStored(key(session), text === '' ? null : text)
}

/** Adds a paragraph to what is already there, for whoever writes it next. */
export function appendDraft(session: string, text: string): void {
  const before = draft(session).value.trimEnd()
  setDraft(session, before === '' ? text : `${before}\n\n${text}`)
}
