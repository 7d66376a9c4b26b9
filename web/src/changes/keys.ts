// The review by keyboard: N and P walk through what is open, K keeps, U undoes, M remarks, S splits.

import { useSignal, type Signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { splitDiffs } from '../lib/choices'
import { changesPath, go } from '../lib/router'
import type { Hunk } from '../wire'
import type { Desk } from './desk'
import { hunkKey } from './diff'
import { mayDecide } from './rights'
import { neighbour, type MarkedFile } from './review'

/** Where the review is: the hunk that the keys act on, and whether it is being remarked on. */
export interface Current {
  path: string
  hunk: Hunk
  remarking: boolean
}

/** The element of a hunk. Ids come from the server, so they are only ever compared. */
export function hunkElementId(path: string, hunk: Hunk): string {
  return `hunk ${path} ${hunkKey(hunk)}`.replace(/\s/g, '_')
}

export function useKeys(desk: Desk, shown: MarkedFile | null): Signal<Current | null> {
  const current = useSignal<Current | null>(null)
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.repeat || document.querySelector('dialog[open]')) return
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return
      if (shown && act(event.key.toLowerCase(), desk, shown, current)) event.preventDefault()
    }
    // Before the keys of every page, which mean something else there.
    addEventListener('keydown', pressed, { capture: true })
    return () => removeEventListener('keydown', pressed, { capture: true })
  }, [desk, shown, current])
  useEffect(() => current.subscribe((at) => { if (at && !at.remarking) requestAnimationFrame(() => reach(at)) }), [current])
  return current
}

function act(key: string, desk: Desk, shown: MarkedFile, current: Signal<Current | null>): boolean {
  const path = shown.diff.path
  const here = current.value?.path === path ? current.value.hunk : null
  const hunk = here ?? shown.hunks.find(({ mark }) => mark === 'open')?.hunk ?? null
  switch (key) {
    case 'n':
    case 'p':
      step(desk, shown, here, key === 'n' ? 1 : -1, current)
      return true
    case 'k':
    case 'u':
      if (!hunk || !mayDecide()) return false
      void (key === 'k' ? desk.keep(path, hunk) : desk.revert(path, hunk))
      step(desk, shown, hunk, 1, current)
      return true
    case 'm':
      if (hunk) current.value = { path, hunk, remarking: true }
      return hunk !== null
    case 's':
      splitDiffs.value = !splitDiffs.value
      return true
    default:
      return false
  }
}

function step(desk: Desk, from: MarkedFile, hunk: Hunk | null, direction: 1 | -1, current: Signal<Current | null>): void {
  const next = neighbour(desk.laid.value, from, hunk, direction)
  if (!next) return
  const path = next.file.diff.path
  current.value = { path, hunk: next.hunk, remarking: false }
  if (path !== from.diff.path) go(changesPath(desk.session, next.file.name), { replace: true })
}

function reach({ path, hunk }: Current): void {
  const element = document.getElementById(hunkElementId(path, hunk))
  element?.focus({ preventScroll: true })
  element?.scrollIntoView({ block: 'start' })
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
}
