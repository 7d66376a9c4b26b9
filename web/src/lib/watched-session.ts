// Watched sessions: rows and state, kept current by cursor.
//
// Whoever shows a session holds a watch; the last one to let go ends it, a little later, so that going
// back and forth costs nothing. After every reconnection the server is asked for what is newer than
// what was told before.

import { signal, type Signal } from '@preact/signals'
import type { Row, SessionState, View } from '../wire'
import { setDraft } from './draft'
import { atFlush } from './flush'
import { removeStored, writeStoredSoon, readStored } from './browser-storage'
import { sendRequest, ConnectionLost, onConnected, onMessage, RequestRefused, connectionState } from './connection'
import { withdrawPrompts } from './outbox'
import { Rows } from './rows'
import { mustBeSealed } from './must-be-sealed'

const LET_GO_MS = 30_000
const KEPT_ROWS_MAX = 40
const KEPT_CHARS_MAX = 400_000

interface StoredView {
  session: string
  rows: Row[]
  state: SessionState | null
  at: number
}

export class WatchedSession {
  readonly rows = new Rows()
  readonly state: Signal<SessionState | null> = signal(null)
  /** Why the session cannot be shown, in the server's words. */
  readonly endReason: Signal<string | null> = signal(null)
  /** Rows have come from the server since this page was loaded, and not from what the browser kept. */
  readonly fresh = signal(false)
  /** When the server last told something. */
  readonly toldAt: Signal<number | null> = signal(null)
  /** What the next watch asks to continue after. */
  upto: number | null = null
  holders = 0
  ending: ReturnType<typeof setTimeout> | undefined

  constructor(readonly session: string) {
    const last = readStored<StoredView>('view')
    if (last?.session !== session) return
    this.rows.reset(last.rows, true)
    this.state.value = last.state
    this.toldAt.value = last.at
  }
}

const watches = new Map<string, WatchedSession>()

export function watchedSession(session: string): WatchedSession | undefined {
  return watches.get(session)
}

/** Starts to watch, or joins who does. Give it back with [`letGo`]. */
export function watch(session: string): WatchedSession {
  let found = watches.get(session)
  // One that has ended says nothing more: whoever comes back asks again.
  if (!found || (found.endReason.peek() !== null && found.holders === 0)) {
    if (found) clearTimeout(found.ending)
    found = new WatchedSession(session)
    watches.set(session, found)
    void request(found)
  }
  clearTimeout(found.ending)
  found.holders += 1
  return found
}

export function unwatch(one: WatchedSession): void {
  one.holders -= 1
  if (one.holders > 0) return
  one.ending = setTimeout(() => {
    if (watches.get(one.session) !== one) return
    watches.delete(one.session)
    sendRequest({ do: 'unwatch', session: one.session }).catch(() => {})
  }, LET_GO_MS)
}

/** Forgets the rows and asks for the last ones: back to the end after reading far back. */
export function rewatch(one: WatchedSession): void {
  one.upto = null
  void request(one)
}

export async function loadEarlier(one: WatchedSession): Promise<void> {
  const first = one.rows.ids.peek()[0]
  if (first === undefined) return
  const page = await sendRequest({ do: 'earlier', session: one.session, before: first })
  // Rows were told anew meanwhile: between these and those there would be a gap.
  if (one.rows.ids.peek()[0] !== first) return
  one.rows.prepend(page.rows, page.earlier)
}

export async function loadFullRow(session: string, row: number): Promise<Row | null> {
  return (await sendRequest({ do: 'whole', session, row })).rows[0] ?? null
}

/** A session is deleted: nothing of it stays in this browser. */
export function forgetSession(session: string): void {
  watches.delete(session)
  withdrawPrompts(session)
  setDraft(session, '')
  // What is to be kept may be of this session too, and the next frame of another one brings that back.
  removeStored('view')
}

/** The session whose rows the browser kept. */
export function storedRowsSession(): string[] {
  const last = readStored<StoredView>('view')
  return last ? [last.session] : []
}

/** What is shown of a session is not to be believed: it is asked for anew. */
export function reloadRows(session: string): void {
  // In turn with the views, of which one may still wait to be shown.
  atFlush(() => {
    // What is kept may be of this session too, and the next frame of another one brings that back.
    removeStored('view')
    const one = watches.get(session)
    if (!one) return
    one.rows.reset([], false)
    one.state.value = null
    one.fresh.value = false
    one.toldAt.value = null
    rewatch(one)
  })
}

export function startSessions(): void {
  onConnected(() => { for (const one of watches.values()) void request(one) })
  onMessage((told) => {
    if (told.on === 'view') atFlush(() => apply(told))
    else if (told.on === 'over') {
      const one = watches.get(told.session)
      if (one) one.endReason.value = told.message
    }
  })
}

async function request(one: WatchedSession): Promise<void> {
  // Every connection begins with a watch; what waited for it would be a second one.
  if (connectionState.peek().is !== 'live') return
  try {
    await sendRequest({ do: 'watch', session: one.session, after: one.fresh.peek() ? one.upto : null })
    one.endReason.value = null
  } catch (error) {
    // A lost connection brings its own new watch.
    if (error instanceof RequestRefused) one.endReason.value = error.message
    else if (!(error instanceof ConnectionLost)) throw error
  }
}

function apply(view: View): void {
  const one = watches.get(view.session)
  if (!one) return
  if (view.reset) one.rows.reset(view.rows, view.earlier)
  else one.rows.put(view.rows)
  for (const append of view.appends) one.rows.append(append)
  if (view.state) one.state.value = view.state
  one.upto = view.upto
  one.fresh.value = true
  one.toldAt.value = Date.now()
  // What is sealed is not left open in the browser.
  if (one.holders > 0 && !mustBeSealed(one.session)) writeStoredSoon('view', () => storedView(one))
}

function storedView(one: WatchedSession): StoredView {
  return { session: one.session, rows: lastRows(one), state: one.state.peek(), at: one.toldAt.peek() ?? Date.now() }
}

/** The last rows, as many as the browser can keep. */
function lastRows(one: WatchedSession): Row[] {
  const rows: Row[] = []
  let chars = 0
  for (const id of one.rows.ids.peek().slice(-KEPT_ROWS_MAX).reverse()) {
    const row = one.rows.get(id)?.peek()
    chars += row ? JSON.stringify(row).length : 0
    if (chars > KEPT_CHARS_MAX) break
    if (row) rows.unshift(row)
  }
  return rows
}
