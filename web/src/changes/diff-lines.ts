// The lines of a diff, ready to be painted: numbered, paired with what they replace, cut into pages.
//
// The server sends hunks as text; this is where they become rows. It knows nothing of the page, so that what
// a person is shown before they decide can be tested as data.

import { HIDDEN, codePointLabel } from '../lib/hidden-characters'
import type { Diff, Hunk } from '../wire'
import { compareWords, type WordPiece } from './word-diff'

export type LineKind = 'same' | 'gone' | 'new'

export interface DiffLine {
  kind: LineKind
  /** Its number before, and after; the one that it does not have is missing. */
  old?: number
  new?: number
  text: string
  /** Set if words of it are to stand out. */
  pieces?: WordPiece[]
}

/** A row of the view side by side: what was, and what is. Either can be missing. */
export interface LinePair {
  left?: DiffLine
  right?: DiffLine
}

/** Lines of a file that are shown at once; the rest comes when it is asked for. */
export const PAGE_LINES = 200

/** A hunk, and how many of its lines are on the page. */
export interface ShownHunk {
  hunk: Hunk
  lines: number
}

/** What is shown of a file when `limit` lines may be, and how many lines are left. */
export function pageOfDiff(diff: Diff, limit: number): { shown: ShownHunk[]; left: number } {
  const shown: ShownHunk[] = []
  let room = limit
  let left = 0
  for (const hunk of diff.hunks) {
    const lines = Math.min(room, hunk.lines.length)
    if (lines > 0) shown.push({ hunk, lines })
    room -= lines
    left += hunk.lines.length - lines
  }
  return { shown, left }
}

/** The first `count` lines of a hunk, with their numbers, and with the words that differ. */
export function numberLines(hunk: Hunk, count = hunk.lines.length): DiffLine[] {
  let before = hunk.old
  let after = hunk.new
  // Where every line ends as on Windows, the ends say nothing; where only some do, they are the change.
  const windows = hunk.lines.every((line) => line.endsWith('\r'))
  const lines = hunk.lines.slice(0, count).map((whole): DiffLine => {
    const line = windows ? whole.slice(0, -1) : whole
    const text = line.slice(1)
    if (line.startsWith('-')) return { kind: 'gone', old: before++, text }
    if (line.startsWith('+')) return { kind: 'new', new: after++, text }
    return { kind: 'same', old: before++, new: after++, text: line.startsWith(' ') ? text : line }
  })
  for (const { gone, added } of runs(lines)) emphasise(gone, added, match(gone, added))
  return lines
}

/** Rows for the view side by side. */
export function pairLines(lines: DiffLine[]): LinePair[] {
  const rows: LinePair[] = []
  for (const { same, gone, added } of runs(lines)) {
    for (const line of same) rows.push({ left: line, right: line })
    let from: Match = [0, 0]
    for (const [left, right] of [...match(gone, added), [gone.length, added.length] as const]) {
      // What stands between two matches has no partner; it is only shown beside each other.
      const lone = [gone.slice(from[0], left), added.slice(from[1], right)] as const
      for (let at = 0; at < Math.max(lone[0].length, lone[1].length); at++) rows.push({ left: lone[0][at], right: lone[1][at] })
      if (left < gone.length && right < added.length) rows.push({ left: gone[left], right: added[right] })
      from = [left + 1, right + 1]
    }
  }
  return rows
}

/** Unchanged lines, then what was taken out, then what was put in its place. */
interface Run {
  same: DiffLine[]
  gone: DiffLine[]
  added: DiffLine[]
}

function runs(lines: DiffLine[]): Run[] {
  const out: Run[] = []
  let run: Run = { same: [], gone: [], added: [] }
  for (const line of lines) {
    const begins = line.kind === 'same' ? run.gone.length + run.added.length > 0 : line.kind === 'gone' && run.added.length > 0
    if (begins) {
      out.push(run)
      run = { same: [], gone: [], added: [] }
    }
    const list = line.kind === 'same' ? run.same : line.kind === 'gone' ? run.gone : run.added
    list.push(line)
  }
  out.push(run)
  return out
}

/** Which line that went is which line that came: places in both lists, in order. */
type Match = readonly [gone: number, added: number]

/** Runs with more comparisons than this are matched by their order alone. */
const MATCHES_MAX = 64

/** As many lines as went came: the first is the first. Otherwise those belong together that are most alike. */
function match(gone: DiffLine[], added: DiffLine[]): Match[] {
  if (gone.length === added.length || gone.length * added.length > MATCHES_MAX) {
    return gone.slice(0, added.length).map((_, at) => [at, at])
  }
  const share = gone.map((left) => added.map((right) => compareWords(left.text, right.text)?.share ?? 0))
  // best[i][j]: the most that the lines from i and from j on can share.
  const best = Array.from({ length: gone.length + 1 }, () => new Array<number>(added.length + 1).fill(0))
  for (let i = gone.length - 1; i >= 0; i--) {
    for (let j = added.length - 1; j >= 0; j--) {
      best[i]![j] = Math.max(best[i + 1]![j]!, best[i]![j + 1]!, best[i + 1]![j + 1]! + share[i]![j]!)
    }
  }
  const found: Match[] = []
  for (let i = 0, j = 0; i < gone.length && j < added.length; ) {
    if (share[i]![j]! > 0 && best[i]![j] === best[i + 1]![j + 1]! + share[i]![j]!) found.push([i++, j++])
    else if (best[i]![j] === best[i + 1]![j]) i++
    else j++
  }
  return found
}

function emphasise(gone: DiffLine[], added: DiffLine[], matches: Match[]): void {
  for (const [left, right] of matches) {
    const words = compareWords(gone[left]!.text, added[right]!.text)
    if (!words) continue
    gone[left]!.pieces = words.before
    added[right]!.pieces = words.after
  }
}

/** Text as it is, and hidden characters by their number. */
export type TextPart = { text: string } | { hidden: string }

export function splitHidden(text: string): TextPart[] {
  const parts: TextPart[] = []
  let at = 0
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > at) parts.push({ text: text.slice(at, match.index) })
    parts.push({ hidden: codePointLabel(match[0]) })
    at = match.index + match[0].length
  }
  if (at < text.length) parts.push({ text: text.slice(at) })
  return parts
}
