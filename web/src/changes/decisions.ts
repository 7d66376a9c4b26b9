// What has been decided about a session's changes while its page is open, laid over what the server still lists.
//
// The server lists what nobody has reviewed; what is kept or undone vanishes from there. A person wants to see
// how far they are and what they did, so decisions stay here until the page is closed. All of it is plain
// values: any order of lists, answers and decisions can be written down in a test.

import type { Diff, Hunk } from '../wire'

/** `undoing`: asked for, and not yet done, because the agent has to finish its turn first. */
export type HunkMark = 'open' | 'keeping' | 'kept' | 'undoing' | 'undone'

export interface HunkDecision {
  path: string
  hunk: Hunk
  mark: Exclude<HunkMark, 'open'>
  /** When it was made, in milliseconds. */
  at: number
}

export interface MarkedHunk {
  hunk: Hunk
  mark: HunkMark
}

export interface MarkedFile {
  /** Its path below the session's folder, for people and addresses; `diff.path` is the server's. */
  name: string
  /** With all hunks that are shown, the decided ones among them. */
  diff: Diff
  hunks: MarkedHunk[]
  mark: HunkMark | 'mixed'
}

export interface ReviewProgress {
  reviewed: number
  total: number
}

/** An undo that is still listed this long after it was asked for, with nothing going on, has failed. */
export const UNDO_GRACE_MS = 3_000

/** What can be decided about a file: its hunks, or, where nothing of it is shown, the file as one. */
export function hunksOf(diff: Diff): Hunk[] {
  return diff.hunks.length > 0 ? diff.hunks : [{ id: null, old: 0, new: 0, lines: [] }]
}

/** The files as they are shown: what is listed, and what was decided since. `folder` is the session's. */
export function markFiles(files: Diff[], decisions: HunkDecision[], folder: string): MarkedFile[] {
  const listed = files.map((diff) => markFile(diff, decisions.filter((one) => one.path === diff.path)))
  const paths = new Set(files.map((diff) => diff.path))
  const settled = [...new Set(decisions.map((one) => one.path))].filter((path) => !paths.has(path))
  const all = [...listed, ...settled.map((path) => settledFile(path, decisions))]
  return all.map((file) => ({ ...file, name: nameIn(folder, file.diff.path) })).sort((a, b) => (a.name < b.name ? -1 : 1))
}

function nameIn(folder: string, path: string): string {
  const below = folder.endsWith('/') ? folder : `${folder}/`
  return folder !== '' && path.startsWith(below) ? path.slice(below.length) : path
}

function markFile(diff: Diff, decisions: HunkDecision[]): MarkedFile {
  const left = [...decisions]
  const hunks = hunksOf(diff).map((hunk): MarkedHunk => {
    const at = left.findIndex((one) => isSameHunk(one.hunk, hunk))
    const decision = at < 0 ? null : left.splice(at, 1)[0]!
    return { hunk, mark: decision?.mark ?? 'open' }
  })
  for (const { hunk, mark } of left) if (hunk.lines.length > 0) hunks.push({ hunk, mark })
  return marked(diff, hunks)
}

function settledFile(path: string, decisions: HunkDecision[]): MarkedFile {
  const hunks = decisions.filter((one) => one.path === path).map(({ hunk, mark }): MarkedHunk => ({ hunk, mark }))
  const lines = hunks.flatMap(({ hunk }) => hunk.lines)
  const count = (sign: string) => lines.filter((line) => line.startsWith(sign)).length
  const status = lines.length > 0 ? 'changed' : 'opaque'
  return marked({ path, status, added: count('+'), removed: count('-'), hunks: [], more: 0 }, hunks)
}

function marked(diff: Diff, hunks: MarkedHunk[]): MarkedFile {
  hunks.sort((a, b) => a.hunk.new - b.hunk.new || a.hunk.old - b.hunk.old)
  const marks = new Set(hunks.map(({ mark }) => mark))
  const mark = marks.has('open') ? 'open' : marks.size === 1 ? hunks[0]!.mark : 'mixed'
  return { name: diff.path, diff: { ...diff, hunks: hunks.map(({ hunk }) => hunk).filter((hunk) => hunk.lines.length > 0) }, hunks, mark }
}

/** The decisions after the server's list is here again. `idle`: no turn runs or waits. */
export function reconcileDecisions(files: Diff[], decisions: HunkDecision[], idle: boolean, now: number): { decisions: HunkDecision[]; failed: HunkDecision[] } {
  const kept: HunkDecision[] = []
  const failed: HunkDecision[] = []
  for (const one of decisions) {
    const diff = files.find(({ path }) => path === one.path)
    const listed = diff !== undefined && hunksOf(diff).some((hunk) => isSameHunk(hunk, one.hunk))
    if (one.mark === 'keeping' || (one.mark !== 'undoing' && !listed)) kept.push(one)
    else if (one.mark === 'undoing' && !listed) kept.push({ ...one, mark: 'undone' })
    else if (one.mark === 'undoing' && (!idle || now - one.at < UNDO_GRACE_MS)) kept.push(one)
    else if (one.mark === 'undoing') failed.push(one)
    // What was settled and is listed again was changed again: it is open.
  }
  return { decisions: kept, failed }
}

export function reviewProgress(files: MarkedFile[]): ReviewProgress {
  const marks = files.flatMap(({ hunks }) => hunks.map(({ mark }) => mark))
  return { reviewed: marks.filter((mark) => mark !== 'open' && mark !== 'keeping').length, total: marks.length }
}

/** The next or the previous hunk that waits for a decision, seen from one; all of them in a ring. */
export function nextOpenHunk(files: MarkedFile[], from: MarkedFile, hunk: Hunk | null, step: 1 | -1): { file: MarkedFile; hunk: Hunk } | null {
  const all = files.flatMap((file) => file.hunks.map(({ hunk, mark }) => ({ file, hunk, mark })))
  const here = all.findIndex(({ file, hunk: one }) => file.diff.path === from.diff.path && (hunk === null || isSameHunk(one, hunk)))
  const start = hunk === null && step === 1 ? here - 1 : here
  for (let count = 1; count <= all.length; count++) {
    const one = all[(((start + step * count) % all.length) + all.length) % all.length]!
    if (one.mark === 'open') return one
  }
  return null
}

/** The server names a hunk anew when lines before it move; its text tells that it is the same. */
export function isSameHunk(a: Hunk, b: Hunk): boolean {
  if (a.id !== null && a.id === b.id) return true
  return a.lines.length === b.lines.length && a.new === b.new && a.lines.every((line, at) => line === b.lines[at])
}

/** A comment on a hunk, as it goes into the next prompt. */
export function commentLine(path: string, hunk: Hunk, text: string): string {
  const changed = hunk.lines.findIndex((line) => !line.startsWith(' '))
  const before = hunk.lines.slice(0, Math.max(0, changed)).filter((line) => !line.startsWith('-')).length
  const place = hunk.lines.length > 0 ? `${path}:${hunk.new + before}` : path
  return `${place}: ${text.trim()}`
}
