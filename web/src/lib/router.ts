// Where the page is: the address, read into a closed set of places.
//
// The address is the only memory of what is shown, so that every screen can be linked to, reloaded and
// opened from a notification.

import { computed, signal } from '@preact/signals'

export type Route =
  | { at: 'list' }
  | { at: 'inbox' }
  | { at: 'new' }
  | { at: 'session'; session: string; row: number | null }
  | { at: 'ask'; session: string; ask: number }
  | { at: 'changes'; session: string; path: string | null }
  | { at: 'settings'; part: string | null }
  | { at: 'pair' }
  | { at: 'login' }
  | { at: 'unknown' }

const address = signal(read())

export const route = computed<Route>(() => parseRoute(address.value))

/** The session that the address names, whatever of it is shown. */
export const routeSession = computed<string | null>(() => {
  const here = route.value
  return 'session' in here ? here.session : null
})

export function navigate(path: string, { replace = false } = {}): void {
  if (path === read()) return
  if (replace) history.replaceState(null, '', path)
  else history.pushState(null, '', path)
  address.value = read()
}

export function sessionPath(session: string, rest = ''): string {
  return `/s/${encodeURIComponent(session)}${rest}`
}

export function askPath(session: string, ask: number): string {
  return sessionPath(session, `/ask/${ask}`)
}

export function changesPath(session: string, path: string | null = null): string {
  const below = path === null ? '' : `/${path.split('/').map(encodeURIComponent).join('/')}`
  return sessionPath(session, `/changes${below}`)
}

export function parseRoute(path: string): Route {
  const [before = '', hash = ''] = path.split('#')
  const parts = (before.split('?')[0] ?? '').split('/').filter(Boolean).map(decoded)
  const [head, session, room, ...rest] = parts
  switch (head) {
    case undefined:
      return { at: 'list' }
    case 'inbox':
    case 'new':
    case 'pair':
    case 'login':
      return parts.length === 1 ? { at: head } : { at: 'unknown' }
    case 'settings':
      return { at: 'settings', part: session ?? null }
    case 's':
      return session === undefined ? { at: 'list' } : inSession(session, room, rest, hash)
    default:
      return { at: 'unknown' }
  }
}

function inSession(session: string, room: string | undefined, rest: string[], hash: string): Route {
  if (room === undefined) {
    const row = /^r(\d{1,15})$/.exec(hash)
    return { at: 'session', session, row: row ? Number(row[1]) : null }
  }
  if (room === 'changes' || room === 'diff') return { at: 'changes', session, path: rest.join('/') || null }
  const ask = room === 'ask' ? Number(rest[0]) : NaN
  return Number.isSafeInteger(ask) ? { at: 'ask', session, ask } : { at: 'unknown' }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

function read(): string {
  return typeof location === 'undefined' ? '/' : location.pathname + location.search + location.hash
}

/** Follows the browser's own buttons, and takes clicks on links of this app instead of loading it anew. */
export function startRouter(): void {
  const changed = () => { address.value = read() }
  addEventListener('popstate', changed)
  addEventListener('hashchange', changed)
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    const link = (event.target as Element | null)?.closest?.('a')
    if (!link || link.target || link.origin !== location.origin || link.hasAttribute('download')) return
    if (link.pathname.startsWith('/ui/')) return
    event.preventDefault()
    navigate(link.pathname + link.search + link.hash)
  })
}
