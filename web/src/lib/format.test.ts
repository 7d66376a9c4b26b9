import { expect, test } from 'vitest'
import { dateOnly, duration, isGrave, titleOf, visible, withoutMarkdown } from './format'

test.each([
  ['ls -la\n\tcd', 'ls -la\n\tcd'],
  ['rm \u202Egpj.exe', 'rm ⟨U+202E⟩gpj.exe'],
  ['a\u200bb\u00adc', 'a⟨U+200B⟩b⟨U+00AD⟩c'],
  ['\x1b[2Jhidden\r', '⟨U+001B⟩[2Jhidden⟨U+000D⟩'],
  ['tag\u{e0041}', 'tag⟨U+E0041⟩'],
  ['a\u3164b\u2800\uffa0\u115f', 'a⟨U+3164⟩b⟨U+2800⟩⟨U+FFA0⟩⟨U+115F⟩'],
  ['ls\ufe0f\u{e0100}', 'ls⟨U+FE0F⟩⟨U+E0100⟩'],
  ['grüße 😀', 'grüße 😀'],
])('every character of %j can be seen', (text, expected) => expect(visible(text)).toBe(expected))

test('a risk that is not known counts as grave', () => {
  expect(['low', 'medium', 'high', 'critical', 'odd', ''].filter(isGrave)).toEqual(['high', 'critical', 'odd', ''])
})

test.each([[5, '5 ms'], [1_400, '1 s'], [59_800, '1 min'], [61_000, '1 min 1 s'], [3_725_000, '1 h 2 min']])('%d ms', (ms, expected) => expect(duration(ms)).toBe(expected))

test('a hint of what was said has no marks, and keeps what is none', () => {
  expect(withoutMarkdown('## What a hitch is A **hitch** ties `a` rope')).toBe('What a hitch is A hitch ties a rope')
  expect(withoutMarkdown('fix #12 in a_b')).toBe('fix #12 in a_b')
})

test('a title says that it is of a session as it was before its machine was put back', () => {
  const branch = { of: 's1', at: Date.UTC(2026, 10, 17, 12) }
  expect(titleOf({ title: 'Knots', folder: '/', branch })).toBe(`Knots (before the restore on ${dateOnly(branch.at)})`)
  expect(dateOnly(branch.at)).toContain('2026')
})

test('a title shows nothing that hides, or that turns the direction of others', () => {
  const title = (text: string) => titleOf({ title: text, folder: '/home/ada/knots' })
  expect(title('fix \u202egnp.exe\u2069\u200e now\u061c')).toBe('fix gnp.exe now')
  expect(title('\u202e\u2066')).toBe('Session in knots')
  expect(title('👩\u200d👧 ❤\ufe0f')).toBe('👩\u200d👧 ❤\ufe0f')
})
