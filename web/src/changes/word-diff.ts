// Which words of a changed line differ from the line it replaces.
//
// A line that was edited is shown twice, before and after; what the eye looks for is the word between them.
// The comparison is a longest common subsequence over words, and bounded: a diff comes from an agent, and one
// minified line must not hold the page up.

/** A piece of a line: `changed` is what the other line does not have. */
export interface WordPiece {
  text: string
  changed: boolean
}

/** Comparisons of words that one pair of lines may cost. Beyond it only the ends of the lines are compared. */
const COMPARISONS_MAX = 20_000

/** Longer lines are shown without emphasis: nobody reads them word by word. */
const LENGTH_MAX = 2_000

/** Two lines with less in common than this are different lines, and emphasis would only be noise. */
const COMMON_MIN = 0.3

const WORDS = /[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu

/** Two lines that are alike: their pieces, and how much they share, from 0 to 1. */
export interface WordDiff {
  before: WordPiece[]
  after: WordPiece[]
  share: number
}

/** Nothing if the lines are so different that emphasis would say nothing. */
export function compareWords(before: string, after: string): WordDiff | null {
  if (before.length > LENGTH_MAX || after.length > LENGTH_MAX) return null
  const left = before.match(WORDS) ?? []
  const right = after.match(WORDS) ?? []
  const start = commonStart(left, right)
  const end = commonEnd(left, right, start)
  const middleLeft = left.slice(start, left.length - end)
  const middleRight = right.slice(start, right.length - end)
  const kept = commonWords(middleLeft, middleRight)
  const keepsLeft = [...fill(start, true), ...kept.left, ...fill(end, true)]
  const keepsRight = [...fill(start, true), ...kept.right, ...fill(end, true)]
  const share = commonShare(left, keepsLeft, before.length, after.length)
  if (share < COMMON_MIN) return null
  return { before: pieces(left, keepsLeft), after: pieces(right, keepsRight), share }
}

function commonStart(left: string[], right: string[]): number {
  let at = 0
  while (at < left.length && at < right.length && left[at] === right[at]) at++
  return at
}

function commonEnd(left: string[], right: string[], start: number): number {
  let at = 0
  while (at < left.length - start && at < right.length - start && left[left.length - 1 - at] === right[right.length - 1 - at]) at++
  return at
}

/** For each word of either side, whether it belongs to the longest common subsequence. */
function commonWords(left: string[], right: string[]): { left: boolean[]; right: boolean[] } {
  const kept = { left: fill(left.length, false), right: fill(right.length, false) }
  if (left.length * right.length > COMPARISONS_MAX) return kept
  const width = right.length + 1
  const lengths = new Uint16Array((left.length + 1) * width)
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      const diagonal = lengths[(i + 1) * width + j + 1]! + 1
      const best = Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!)
      lengths[i * width + j] = left[i] === right[j] ? diagonal : best
    }
  }
  let i = 0
  let j = 0
  while (i < left.length && j < right.length) {
    if (left[i] === right[j]) {
      kept.left[i++] = true
      kept.right[j++] = true
    } else if (lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!) i++
    else j++
  }
  return kept
}

/** How much of the longer line is in both. White space alone makes no two lines alike. */
function commonShare(words: string[], keeps: boolean[], ...lengths: number[]): number {
  let common = 0
  for (const [at, word] of words.entries()) if (keeps[at] && word.trim() !== '') common += word.length
  return common / Math.max(1, ...lengths)
}

/** Neighbours of one kind become one piece, and white space between two changed words belongs to them. */
function pieces(words: string[], keeps: boolean[]): WordPiece[] {
  const out: WordPiece[] = []
  for (const [at, word] of words.entries()) {
    const bridge = word.trim() === '' && keeps[at - 1] === false && keeps[at + 1] === false
    const changed = !keeps[at] || bridge
    const last = out.at(-1)
    if (last && last.changed === changed) last.text += word
    else out.push({ text: word, changed })
  }
  return out
}

function fill(count: number, value: boolean): boolean[] {
  return new Array<boolean>(count).fill(value)
}
