import { expect, test } from 'vitest'
import { askPath, changesPath, parseRoute } from './router'

test.each([
  ['/', { at: 'list' }],
  ['/inbox', { at: 'inbox' }],
  ['/new', { at: 'new' }],
  ['/login#abc', { at: 'login' }],
  ['/pair', { at: 'pair' }],
  ['/settings', { at: 'settings', part: null }],
  ['/settings/devices', { at: 'settings', part: 'devices' }],
  ['/s/one', { at: 'session', session: 'one', row: null }],
  ['/s/a%20b#r12', { at: 'session', session: 'a b', row: 12 }],
  ['/s/one#rx', { at: 'session', session: 'one', row: null }],
  ['/s/one/ask/7', { at: 'ask', session: 'one', ask: 7 }],
  ['/s/one/ask/x', { at: 'unknown' }],
  ['/s/one/changes', { at: 'changes', session: 'one', path: null }],
  ['/s/one/changes/src/a%2Fb.rs', { at: 'changes', session: 'one', path: 'src/a/b.rs' }],
  ['/s/%E0%A4%A', { at: 'session', session: '%E0%A4%A', row: null }],
  ['/elsewhere', { at: 'unknown' }],
  ['/inbox/more', { at: 'unknown' }],
])('%s', (path, expected) => expect(parseRoute(path)).toEqual(expected))

test('paths lead to where they say', () => {
  expect(parseRoute(askPath('a/b', 3))).toEqual({ at: 'ask', session: 'a/b', ask: 3 })
  expect(parseRoute(changesPath('s', 'dir/ü #1.rs'))).toEqual({ at: 'changes', session: 's', path: 'dir/ü #1.rs' })
})
