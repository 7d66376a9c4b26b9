// Code blocks get their colours when they are seen, from a worker that is started for the first one, and
// lose them when they are out of sight: colours are most of a code block's nodes, and a page has few.

import workerAddress from './highlight.worker.ts?worker&url'
import type { Coloured } from './highlight.worker'
import { scriptAddress } from './trusted-script'

const CHARS_MAX = 20_000
/** A block with more pieces stays plain: the page has a budget of nodes. */
const PIECES_MAX = 700
const WAITING_MAX = 50
/** So close to the window counts as seen. */
const MARGIN_PX = 300

let worker: Worker | null = null
let broken = false
let nextId = 1
const waiting = new Map<number, HTMLElement>()
const languages = new WeakMap<Element, string>()

const seen = typeof IntersectionObserver === 'undefined' ? null : new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const code = entry.target as HTMLElement
    if (entry.isIntersecting) colour(code)
    // The text stays the same, and so does its height.
    else if (code.childElementCount > 0) code.textContent = code.textContent
  }
}, { rootMargin: `${MARGIN_PX}px` })

/** Colours this `code` element some time after it has come into view. */
export function colourWhenSeen(code: HTMLElement, language: string): void {
  if (language === '' || broken || (code.textContent?.length ?? 0) > CHARS_MAX) return
  languages.set(code, language.toLowerCase())
  seen?.observe(code)
}

function colour(code: HTMLElement): void {
  const language = languages.get(code)
  if (!language || code.childElementCount > 0 || waiting.size >= WAITING_MAX || !start()) return
  const id = nextId++
  waiting.set(id, code)
  worker?.postMessage({ id, code: code.textContent ?? '', language })
}

function start(): boolean {
  if (worker || broken) return !broken
  try {
    worker = new Worker(scriptAddress(workerAddress), { type: 'module' })
    worker.onmessage = (event: MessageEvent<{ id: number; pieces: Coloured[] | null }>) => finish(event.data)
    worker.onerror = () => { broken = true }
  } catch {
    // A browser without module workers, or a policy that allows none: code stays in one colour.
    broken = true
  }
  return !broken
}

function finish({ id, pieces }: { id: number; pieces: Coloured[] | null }): void {
  const code = waiting.get(id)
  waiting.delete(id)
  if (!code || !pieces || pieces.length > PIECES_MAX) return
  const text = pieces.map(([, piece]) => piece).join('')
  if (text !== code.textContent) return
  code.replaceChildren(...pieces.map(([kind, piece]) => {
    if (kind === null) return document.createTextNode(piece)
    const span = document.createElement('span')
    span.className = `h-${kind}`
    span.textContent = piece
    return span
  }))
}
