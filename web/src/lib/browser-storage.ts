// What this browser keeps between visits: drafts, choices, and the last state for when there is no
// connection. Bounded, because it holds what agents wrote; forgotten when the device is signed out.

const PREFIX = 'ropewalk.'
/** Longer values are not kept at all. */
const VALUE_CHARS_MAX = 1_000_000
/** What changes often is kept when it has been quiet for the first, or at the latest after the second. */
const QUIET_MS = 2_000
const LATEST_MS = 30_000

/** The device was signed out: what still arrives, or is still to be written, must not come back. */
let forgotten = false

export function readStored<T>(name: string): T | null {
  try {
    const text = localStorage.getItem(PREFIX + name)
    return text === null ? null : (JSON.parse(text) as T)
  } catch {
    return null
  }
}

/** The names that begin so. */
export function storedNames(beginning: string): string[] {
  const names: string[] = []
  try {
    for (let place = 0; place < localStorage.length; place += 1) names.push(localStorage.key(place) ?? '')
  } catch {
    // Nothing is kept where nothing can be read.
  }
  return names.filter((name) => name.startsWith(PREFIX + beginning)).map((name) => name.slice(PREFIX.length))
}

/** Nothing (`null`) forgets it. A browser that refuses, or is full, keeps nothing. Gives whether it is kept. */
export function writeStored(name: string, value: unknown): boolean {
  try {
    const text = value === null || (forgotten && !stays(name)) ? null : JSON.stringify(value)
    const kept = text !== null && text.length <= VALUE_CHARS_MAX
    if (kept) localStorage.setItem(PREFIX + name, text)
    else localStorage.removeItem(PREFIX + name)
    return kept
  } catch {
    // Private windows and full disks: the page works, it only forgets.
    return false
  }
}

/** The name under which another tab has dropped something, for whoever has the same. */
export function onStoredRemoved(listener: (name: string) => void): void {
  globalThis.addEventListener('storage', (event: StorageEvent) => {
    if (event.newValue === null && event.key?.startsWith(PREFIX)) listener(event.key.slice(PREFIX.length))
  })
}

const soon = new Map<string, () => unknown>()
let timer: ReturnType<typeof setTimeout> | undefined
let first = 0

/** Keeps what changes often: when it is quiet, and at the latest when the page goes. */
export function writeStoredSoon(name: string, value: () => unknown): void {
  if (forgotten) return
  if (soon.size === 0) first = Date.now()
  soon.set(name, value)
  clearTimeout(timer)
  timer = setTimeout(writeAll, Math.max(0, Math.min(QUIET_MS, first + LATEST_MS - Date.now())))
}

/** Does not keep what was to be kept soon. */
export function removeStored(name: string): void {
  soon.delete(name)
  writeStored(name, null)
}

export function startStorage(): void {
  addEventListener('pagehide', writeAll)
  document.addEventListener('visibilitychange', () => { if (document.visibilityState === 'hidden') writeAll() })
}

function writeAll(): void {
  clearTimeout(timer)
  timer = undefined
  for (const [name, value] of soon) writeStored(name, value())
  soon.clear()
}

/**
 * What is known to be sealed goes with the keys: a server that signs a device out must not make it forget that. What
 * proves a sign-in may be of a newer one, in another tab; whoever signs out drops it by itself.
 */
const stays = (name: string) => name.startsWith('choice.') || name.startsWith('sealed.') || name.startsWith('proof')

/** Forgets everything that came from the server or was written for it; choices of appearance stay. */
export function forgetContent(): void {
  for (const [name, value] of soon) if (stays(name)) writeStored(name, value())
  forgotten = true
  soon.clear()
  for (const name of storedNames('')) if (!stays(name)) writeStored(name, null)
}
