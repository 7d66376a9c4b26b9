// The review by keyboard: N and P walk through what is open, K keeps, U undoes, M comments, S splits.

import { useSignal, type Signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { splitDiffs } from '../lib/preferences'
import { changesPath, navigate } from '../lib/router'
import type { Hunk } from '../wire'
import type { ChangeReview } from './change-review'
import { hunkKey } from './diff'
import { mayReview } from './review-rights'
import { nextOpenHunk, type MarkedFile } from './decisions'

/** Where the review is: the hunk that the keys act on, and whether it is being commented on. */
export interface CurrentHunk {
  path: string
  hunk: Hunk
  commenting: boolean
}

/** The element of a hunk. Ids come from the server, so they are only ever compared. */
export function hunkElementId(path: string, hunk: Hunk): string {
  return `hunk ${path} ${hunkKey(hunk)}`.replace(/\s/g, '_')
}

export function useReviewKeys(review: ChangeReview, shown: MarkedFile | null): Signal<CurrentHunk | null> {
  const current = useSignal<CurrentHunk | null>(null)
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.repeat || document.querySelector('dialog[open]')) return
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return
      if (shown && act(event.key.toLowerCase(), review, shown, current)) event.preventDefault()
    }
    // Before the keys of every page, which mean something else there.
    addEventListener('keydown', pressed, { capture: true })
    return () => removeEventListener('keydown', pressed, { capture: true })
  }, [review, shown, current])
  useEffect(() => current.subscribe((at) => { if (at && !at.commenting) requestAnimationFrame(() => reach(at)) }), [current])
  return current
}

function act(key: string, review: ChangeReview, shown: MarkedFile, current: Signal<CurrentHunk | null>): boolean {
  const path = shown.diff.path
  const here = current.value?.path === path ? current.value.hunk : null
  const hunk = here ?? shown.hunks.find(({ mark }) => mark === 'open')?.hunk ?? null
  switch (key) {
    case 'n':
    case 'p':
      step(review, shown, here, key === 'n' ? 1 : -1, current)
      return true
    case 'k':
    case 'u':
      if (!hunk || !mayReview()) return false
      void (key === 'k' ? review.keep(path, hunk) : review.revert(path, hunk))
      step(review, shown, hunk, 1, current)
      return true
    case 'm':
      if (hunk) current.value = { path, hunk, commenting: true }
      return hunk !== null
    case 's':
      splitDiffs.value = !splitDiffs.value
      return true
    default:
      return false
  }
}

function step(review: ChangeReview, from: MarkedFile, hunk: Hunk | null, direction: 1 | -1, current: Signal<CurrentHunk | null>): void {
  const next = nextOpenHunk(review.markedFiles.value, from, hunk, direction)
  if (!next) return
  const path = next.file.diff.path
  current.value = { path, hunk: next.hunk, commenting: false }
  if (path !== from.diff.path) navigate(changesPath(review.session, next.file.name), { replace: true })
}

function reach({ path, hunk }: CurrentHunk): void {
  const element = document.getElementById(hunkElementId(path, hunk))
  element?.focus({ preventScroll: true })
  element?.scrollIntoView({ block: 'start' })
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
}
