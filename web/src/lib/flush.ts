// One clock for everything that streams: what arrives is collected and shown at most every 40 ms.
//
// Layout and paint cost ten times what the scripts do, so showing less often is what keeps a phone
// responsive. Listeners around a flush measure and restore the reading position.

import { batch } from '@preact/signals'

const FLUSH_MS = 40

type Change = () => void
interface Around {
  before(): void
  after(): void
}

const changes: Change[] = []
const arounds = new Set<Around>()
let last = 0
let planned = false

/** Runs with the next flush, in the order given. */
export function atFlush(change: Change): void {
  changes.push(change)
  if (planned) return
  planned = true
  const wait = Math.max(0, last + FLUSH_MS - performance.now())
  // A hidden page gets no animation frames, and still has to take in what it is sent.
  if (wait > 4 || document.visibilityState === 'hidden') setTimeout(flush, wait)
  else requestAnimationFrame(flush)
}

/** A frame that was asked for does not come any more once the page is hidden. */
export function startFlush(): void {
  document.addEventListener('visibilitychange', () => { if (planned && document.visibilityState === 'hidden') setTimeout(flush) })
}

export function aroundFlush(around: Around): () => void {
  arounds.add(around)
  return () => arounds.delete(around)
}

function flush(): void {
  if (!planned) return
  planned = false
  last = performance.now()
  for (const around of arounds) around.before()
  const now = changes.splice(0)
  batch(() => {
    for (const change of now) {
      try {
        change()
      } catch (error) {
        console.error(error)
      }
    }
  })
  // Components are rendered in a microtask that the changes above have queued; this one follows it.
  queueMicrotask(() => { for (const around of arounds) around.after() })
}
