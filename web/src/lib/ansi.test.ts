import { describe, expect, test } from 'vitest'
import { numbers } from '../testing/fake-dom'
import { CHARS_MAX, LINES_MAX, parseAnsi, plainText } from './ansi'

/** Lines as `[classes|ink|ground:text]`, plain pieces as their text. */
function written(text: string): string {
  return parseAnsi(text).map((line) => line.map((piece) => {
    const style = [piece.classes, piece.ink, piece.ground].filter(Boolean).join('|')
    return style === '' ? piece.text : `[${style}:${piece.text}]`
  }).join('')).join('\n')
}

describe('styles', () => {
  test.each([
    ['plain', 'plain'],
    ['\x1b[31mred\x1b[0m rest', '[a-ink-red:red] rest'],
    ['\x1b[1;4;92mx\x1b[m', '[a-bold a-under a-ink-bright-green:x]'],
    ['\x1b[38;5;196mx\x1b[39my', '[#ff0000:x]y'],
    ['\x1b[38;5;9mx', '[a-ink-bright-red:x]'],
    ['\x1b[48;2;1;2;300mx', '[#0102ff:x]'],
    ['\x1b[38:2:1:2:3mx', '[#010203:x]'],
    ['\x1b[7mx', '[a-ink-base a-on-text:x]'],
    ['\x1b[31;44;7mx', '[a-ink-blue a-on-red:x]'],
    ['\x1b[38;5mx', '[a-ink-black:x]'],
    ['\x1b[999mx', 'x'],
    ['a\x1b[1mb\nc', 'a[a-bold:b]\n[a-bold:c]'],
  ])('%j', (text, expected) => expect(written(text)).toBe(expected))
})

describe('lines', () => {
  test.each([
    ['a\nb\n', 'a\nb'],
    ['a\r\nb', 'a\nb'],
    ['10%\r20%\rdone', 'done'],
    ['longer\rab', 'abnger'],
    ['longer\r\x1b[Kab', 'ab'],
    ['gone\x1b[2K\rab', 'ab'],
    ['ab\b\bxy', 'xy'],
    ['a\tb', 'a       b'],
  ])('%j', (text, expected) => expect(written(text)).toBe(expected))
})

describe('what is not style does nothing', () => {
  test.each([
    ['\x1b]0;title\x07x', 'x'],
    ['\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\', 'click'],
    ['\x1b]52;c;ZXZpbA==\x07x', 'x'],
    ['\x1b[2J\x1b[H\x1b[10;10Hx', 'x'],
    ['\x1b[6n\x1b[c\x1b[?1049hx', 'x'],
    ['\x1bP+q544e\x1b\\x', 'x'],
    ['\x1b_Gf=24;AAAA\x1b\\x', 'x'],
    ['\x9b31mx', '[a-ink-red:x]'],
    ['\x07\x00\x7f\x85x', 'x'],
    ['\x1b(Bx\x1bc', 'x'],
    ['\x1b]0;never ended', ''],
    ['x\x1b[', 'x'],
    ['x\x1b', 'x'],
    ['<script>alert(1)</script>', '<script>alert(1)</script>'],
  ])('%j', (text, expected) => expect(written(text)).toBe(expected))

  test('whatever comes, no control character is left', () => {
    const alphabet = ['\x1b', '[', ']', '0', ';', 'm', 'K', '\\', '\x07', '\r', '\n', 'x', '\x9b', '\x9d', 'P', '\b', '38', '5', ' ', 'é']
    for (let seed = 1; seed <= 500; seed += 1) {
      const next = numbers(seed)
      const text = Array.from({ length: next(60) }, () => alphabet[next(alphabet.length)]).join('')
      expect(plainText(text).replaceAll('\n', ''), JSON.stringify(text)).not.toMatch(/[\x00-\x1f\x7f-\x9f]/)
      for (const line of parseAnsi(text)) for (const piece of line) expect(piece.classes).toMatch(/^[a-z -]*$/)
    }
  })
})

test('a flood is bounded', () => {
  expect(parseAnsi('x\n'.repeat(CHARS_MAX)).length).toBeLessThanOrEqual(LINES_MAX)
  expect(parseAnsi('y'.repeat(CHARS_MAX * 2)).length).toBeLessThanOrEqual(LINES_MAX)
  // Endings that never come: each would look through all that follows if the search went on at the next.
  expect(parseAnsi('\x1b]'.repeat(CHARS_MAX))).toEqual([])
  expect(plainText('\x1b['.repeat(CHARS_MAX))).toMatch(/^\[*$/)
})
