// The list of sessions, as the server tells it, with the last known one for when there is none.

import { computed, signal } from '@preact/signals'
import type { AskView, Card } from '../wire'
import { atFlush } from './flush'
import { writeStoredSoon, readStored } from './browser-storage'
import { sendRequest, onMessage } from './connection'
import { unsealedCards, mustBeSealed } from './must-be-sealed'

const KEPT_CARDS_MAX = 60

export const cards = signal<ReadonlyMap<string, Card>>(new Map(readStored<[string, Card][]>('cards') ?? []))
/** What continues the list; nothing if all of it is here. */
export const olderCursor = signal<string | null>(null)
/** The server has told its list at least once since this page was loaded. */
export const boardLoaded = signal(false)
/** The next list is the first after a greeting. */
let isNew = true

const URGENCY: Record<Card['state'], number> = { waiting: 0, working: 1, elsewhere: 1, failed: 2, done: 2, empty: 2 }

/** By attention, then by recency. */
export const sorted = computed<Card[]>(() =>
  [...cards.value.values()].sort((a, b) => urgency(a) - urgency(b) || b.updatedAt - a.updatedAt))

const urgency = (card: Card) => URGENCY[card.state] ?? 2

/** Everything that waits for a person, in all sessions, oldest first; nothing of what the browser only kept. */
export const openAsks = computed<AskView[]>(() => !boardLoaded.value ? [] :
  [...cards.value.values()].flatMap((card) => card.asks).sort((a, b) => a.at - b.at))

export async function loadOlder(): Promise<void> {
  const before = olderCursor.value
  if (before === null) return
  const page = await sendRequest({ do: 'sessions', before, search: null })
  put(unsealedCards(page.cards), [])
  olderCursor.value = page.older
}

export async function searchSessions(text: string): Promise<Card[]> {
  return unsealedCards((await sendRequest({ do: 'sessions', before: null, search: text })).cards)
}

/** In turn with the lists, of which one that has them may still wait to be shown. */
export function dropCards(sessions: string[]): void {
  atFlush(() => put([], sessions))
}

export function startBoard(): void {
  onMessage((told) => {
    // In turn with the lists: one of the connection before may still wait to be shown.
    if (told.on === 'hello') atFlush(() => { isNew = true })
    if (told.on !== 'cards') return
    atFlush(() => {
      // The first list after a greeting is the newest page, whole: what it lacks and is newer than its
      // end is gone. Cards of older pages are asked for anew.
      if (isNew) {
        isNew = false
        cards.value = new Map()
        olderCursor.value = told.older
        boardLoaded.value = true
      }
      put(told.cards, told.gone)
    })
  })
}

function put(changed: Card[], gone: string[]): void {
  const next = new Map(cards.value)
  for (const session of gone) next.delete(session)
  for (const card of changed) next.set(card.session, card)
  cards.value = next
  // What is sealed is not left open in the browser.
  writeStoredSoon('cards', () => sorted.value.filter(({ session }) => !mustBeSealed(session)).slice(0, KEPT_CARDS_MAX).map((card) => [card.session, card]))
}
