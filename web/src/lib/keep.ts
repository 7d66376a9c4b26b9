// What this browser keeps between visits: drafts, choices, and the last state for when there is no
// connection. Bounded, because it holds what agents wrote; forgotten when the device is signed out.

const PREFIX = 'ropewalk.'
/** Longer values are not kept at all. */
const VALUE_CHARS_MAX = 1_000_000
const KEEP_AFTER_MS = 2_000

export function kept<T>(name: string): T | null {
  try {
    const text = localStorage.getItem(PREFIX + name)
    return text === null ? null : (JSON.parse(text) as T)
  } catch {
    return null
  }
}

/** Nothing (`null`) forgets it. A browser that refuses, or is full, keeps nothing. */
export function keep(name: string, value: unknown): void {
  try {
    if (value === null) return localStorage.removeItem(PREFIX + name)
    const text = JSON.stringify(value)
    if (text.length > VALUE_CHARS_MAX) localStorage.removeItem(PREFIX + name)
    else localStorage.setItem(PREFIX + name, text)
  } catch {
    // Private windows and full disks: the page works, it only forgets.
  }
}

const soon = new Map<string, () => unknown>()
let timer: ReturnType<typeof setTimeout> | undefined

/** Keeps what changes often: after a moment, and at the latest when the page goes. */
export function keepSoon(name: string, value: () => unknown): void {
  soon.set(name, value)
  timer ??= setTimeout(keepAll, KEEP_AFTER_MS)
}

export function startKeeping(): void {
  addEventListener('pagehide', keepAll)
  document.addEventListener('visibilitychange', () => { if (document.visibilityState === 'hidden') keepAll() })
}

function keepAll(): void {
  clearTimeout(timer)
  timer = undefined
  for (const [name, value] of soon) keep(name, value())
  soon.clear()
}

/** Forgets everything that came from the server or was written for it; choices of appearance stay. */
export function forgetContent(): void {
  soon.clear()
  try {
    for (const name of Object.keys(localStorage)) {
      if (/^ropewalk\.(cards|view|heard|outbox|draft\.)/.test(name)) localStorage.removeItem(name)
    }
  } catch {
    // Nothing is kept where nothing can be read.
  }
}
