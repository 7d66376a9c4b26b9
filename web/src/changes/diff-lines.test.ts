import { describe, expect, test } from 'vitest'
import type { Diff, Hunk } from '../wire'
import { numberLines, pageOfDiff, PAGE_LINES, pairLines, splitHidden, type DiffLine } from './diff-lines'
import { compareWords, type WordPiece } from './word-diff'

const hunk = (...lines: string[]): Hunk => ({ id: 'h', old: 10, new: 20, lines })

/** Changed words in brackets. */
const marked = (pieces: WordPiece[] | undefined) => pieces?.map((piece) => (piece.changed ? `[${piece.text}]` : piece.text)).join('')

function compared(before: string, after: string): [string | undefined, string | undefined] | null {
  const found = compareWords(before, after)
  return found && [marked(found.before), marked(found.after)]
}

function diffOf(...sizes: number[]): Diff {
  const hunks = sizes.map((size, at): Hunk => ({ id: `${at}`, old: 1, new: 1, lines: Array.from({ length: size }, (_, line) => `+${line}`) }))
  return { path: 'a', status: 'changed', added: 1, removed: 0, hunks, more: 0 }
}

describe('words', () => {
  test('only the words that differ stand out', () => {
    expect(compared('let turn = last.unwrap();', 'let turn = last.expect();')).toEqual(['let turn = last.[unwrap]();', 'let turn = last.[expect]();'])
    expect(compared('call(a, c)', 'call(a, b, c)')).toEqual(['call(a, c)', 'call(a, [b, ]c)'])
  })

  test('white space between changed words belongs to them', () => {
    expect(compared('the same start: one two three', 'the same start: four five six')).toEqual(['the same start: [one two three]', 'the same start: [four five six]'])
  })

  test('lines with little in common are not compared word by word', () => {
    expect(compared('return None', 'while let Some(event) = stream.next()')).toBeNull()
    expect(compared('        }', '        done')).toBeNull()
    expect(compared('', 'x')).toBeNull()
  })

  test('words of every script are words', () => {
    expect(compared('größe = alt', 'größe = neu')).toEqual(['größe = [alt]', 'größe = [neu]'])
  })

  test('lines that would cost too much are compared at their ends only', () => {
    const words = Array.from({ length: 300 }, (_, at) => `w${at}`).join(' ')
    expect(compared(`${words} x`, `y ${words}`)).toBeNull()
    expect(compared(`${words} a`, `${words} b`)).toEqual([`${words} [a]`, `${words} [b]`])
    expect(compared('a'.repeat(5_000), `${'a'.repeat(5_000)} b`)).toBeNull()
  })
})

describe('lines', () => {
  test('each line has the numbers it has in the files', () => {
    const lines = numberLines(hunk(' a', '-b', '+c', '+d', ' e'))
    expect(lines.map(({ kind, old, new: after }) => [kind, old, after])).toEqual([
      ['same', 10, 20], ['gone', 11, undefined], ['new', undefined, 21], ['new', undefined, 22], ['same', 12, 23],
    ])
  })

  test('Windows line ends are shown only where they are the change', () => {
    expect(numberLines(hunk(' a\r', '+b\r')).map(({ text }) => text)).toEqual(['a', 'b'])
    expect(numberLines(hunk('-a', '+a\r')).map(({ text }) => text)).toEqual(['a', 'a\r'])
  })

  test('a changed line is compared with the line that it is most like', () => {
    const lines = numberLines(hunk('-self.cancel(turn);', '+// a comment about it', '+self.cancel(other);'))
    expect(lines.map(({ pieces }) => marked(pieces))).toEqual(['self.cancel([turn]);', undefined, 'self.cancel([other]);'])
  })

  test('side by side, what belongs together stands in one row and nothing is lost', () => {
    const text = (line: DiffLine | undefined) => line?.text ?? ''
    const rows = pairLines(numberLines(hunk(' top', '-self.cancel(turn);', '+// a comment about it', '+self.cancel(other);', ' mid', '-x', '-y', '+z', ' end')))
    expect(rows.map(({ left, right }) => `${text(left)} | ${text(right)}`)).toEqual([
      'top | top', ' | // a comment about it', 'self.cancel(turn); | self.cancel(other);', 'mid | mid', 'x | z', 'y | ', 'end | end',
    ])
  })

  test('characters that hide or turn others are named', () => {
    expect(splitHidden('a\u202eb\u200b')).toEqual([{ text: 'a' }, { hidden: 'U+202E' }, { text: 'b' }, { hidden: 'U+200B' }])
    expect(splitHidden('a\u3164')).toEqual([{ text: 'a' }, { hidden: 'U+3164' }])
    expect(splitHidden('\ttab and ünïcode ✓')).toEqual([{ text: '\ttab and ünïcode ✓' }])
  })
})

describe('pages', () => {
  test('a short file is shown whole', () => {
    expect(pageOfDiff(diffOf(3, 4), PAGE_LINES)).toMatchObject({ left: 0, shown: [{ lines: 3 }, { lines: 4 }] })
  })

  test('a long one is cut within a hunk, and says how much is left', () => {
    const { shown, left } = pageOfDiff(diffOf(150, 150, 10), PAGE_LINES)
    expect(shown.map(({ lines }) => lines)).toEqual([150, 50])
    expect(left).toBe(110)
    expect(pageOfDiff(diffOf(150, 150, 10), 2 * PAGE_LINES)).toMatchObject({ left: 0, shown: [{ lines: 150 }, { lines: 150 }, { lines: 10 }] })
  })
})
