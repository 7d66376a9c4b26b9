import { expect, test } from 'vitest'
import { commandChoices, triggerAt } from './picker'

test.each([
  ['/mod', 4, 'command mod 0-4'],
  ['/', 1, 'command  0-1'],
  ['/model big', 10, ''],
  ['see @src/li', 11, 'file src/li 4-11'],
  ['@', 1, 'file  0-1'],
  ['mail me@example.com', 19, ''],
  ['say /this', 9, ''],
  ['/model', 0, ''],
])('%s', (text, cursor, expected) => {
  const found = triggerAt(text, cursor)
  expect(found ? `${found.kind} ${found.word} ${found.from}-${found.to}` : '').toBe(expected)
})

test('commands that begin with the word come first', () => {
  const commands = ['undo', 'compact', 'model'].map((name) => ({ name, description: name === 'compact' ? 'for the model' : '', hint: null }))
  expect(commandChoices(commands, 'mod').map((choice) => choice.text)).toEqual(['/model ', '/compact '])
})
