// Keys for everything, and the list of them.

import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { mayAnswerAlways } from '../ask/answer'
import { openAsks, sorted } from '../lib/board'
import { askPath, navigate, route, routeSession, sessionPath } from '../lib/router'
import { copyText } from '../lib/toast'
import { stopTurn } from '../session/session-footer'
import { watchedSession } from '../lib/watched-session'
import { Sheet } from './sheet'

const ESCAPE_TWICE_MS = 600

export const helpOpen = signal(false)

const keys = (): [string, string][] => [
  ['J, K', 'Next and previous session'],
  ['Enter', 'Open the selected session'],
  ['/', 'Filter the sessions'],
  ['A', 'Go to the first request that needs you'],
  mayAnswerAlways() ? ['Y, Shift Y, N', 'In a request: allow once, allow always, deny'] : ['Y, N', 'In a request: allow once, deny'],
  ['[, ]', 'Previous and next prompt'],
  ['E', 'Open or close the focused tool call, or the last one'],
  ['C', 'Copy the last answer'],
  ['N, P', 'In Changes: next and previous change'],
  ['K, U, M', 'In Changes: keep, undo, comment'],
  ['S', 'In Changes: side by side, or one column'],
  ['I', 'Write a prompt'],
  ['Esc Esc', 'Stop the agent'],
  ['Ctrl Enter', 'Send the prompt'],
  ['?', 'Show these shortcuts'],
]

export function ShortcutHelp() {
  if (!helpOpen.value) return null
  return (
    <Sheet label="Keyboard shortcuts" onClose={() => { helpOpen.value = false }}>
      <dl class="key-list">{keys().map(([key, what]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}</dl>
    </Sheet>
  )
}

export function useShortcuts(): void {
  useEffect(() => {
    let escaped = 0
    const pressed = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.isComposing || event.repeat || document.querySelector('dialog[open]')) return
      const session = routeSession.value
      if (event.key === 'Escape') {
        const twice = event.timeStamp - escaped < ESCAPE_TWICE_MS
        escaped = twice ? 0 : event.timeStamp
        if (twice && session && watchedSession(session)?.state.peek()?.busy) void stopTurn(session)
        return
      }
      const from = event.target as HTMLElement
      const typing = /^(TEXTAREA|INPUT|SELECT)$/.test(from.tagName) || from.isContentEditable
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return
      const action = ACTIONS[event.key]
      if (!action) return
      event.preventDefault()
      action()
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [])
}

const ACTIONS: Record<string, () => void> = {
  '/': () => document.getElementById('filter')?.focus(),
  '?': () => { helpOpen.value = true },
  j: () => stepCard(1),
  k: () => stepCard(-1),
  a: answerFirst,
  '[': () => stepPrompt(-1),
  ']': () => stepPrompt(1),
  e: toggleTool,
  c: copyLast,
  i: () => document.getElementById('composer')?.focus(),
}

/** The focus moves in the list; Enter is the link's own. */
function stepCard(by: number): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>('.rail .card')]
  if (links.length === 0) {
    const first = sorted.value[0]
    if (first) navigate(sessionPath(first.session))
    return
  }
  const focused = links.indexOf(document.activeElement as HTMLAnchorElement)
  const current = focused >= 0 ? focused : links.findIndex((link) => link.getAttribute('aria-current') === 'page')
  links[Math.max(0, Math.min(links.length - 1, current + by))]?.focus()
}

/** What the session on the screen asks comes first, then what others ask. */
function answerFirst(): void {
  const panel = document.getElementById('ask-panel')
  if (panel) return panel.focus()
  const first = openAsks.value[0]
  if (!first) return
  navigate(askPath(first.session, first.ask))
  if (route.value.at === 'ask') setTimeout(() => document.getElementById('ask-panel')?.focus(), 300)
}

function stepPrompt(by: number): void {
  const frame = document.getElementById('transcript')
  const prompts = [...document.querySelectorAll<HTMLElement>('[data-prompt]')]
  if (!frame || prompts.length === 0) return
  const edge = frame.getBoundingClientRect().top + 70
  const tops = prompts.map((prompt) => prompt.getBoundingClientRect().top)
  const next = by > 0 ? tops.findIndex((top) => top > edge + 2) : tops.findLastIndex((top) => top < edge - 2)
  const top = tops[next]
  if (top !== undefined) frame.scrollTop += top - edge
}

function toggleTool(): void {
  const focused = (document.activeElement as HTMLElement | null)?.closest('.tool')?.querySelector<HTMLElement>('.tool-head')
  const all = document.querySelectorAll<HTMLElement>('#transcript .tool-head, #transcript .group > .fold')
  ;(focused ?? all[all.length - 1])?.click()
}

function copyLast(): void {
  const one = routeSession.value ? watchedSession(routeSession.value) : undefined
  const id = one?.rows.ids.peek().findLast((candidate) => one.rows.get(candidate)?.peek().is === 'said')
  const row = id === undefined ? undefined : one?.rows.get(id)?.peek()
  if (row?.is === 'said') void copyText(row.text)
}
