import { expect, test } from 'vitest'
import type { AskView } from '../wire'
import { summaryOf, isTruncated, isFullyShown } from './ask-summary'

const ask = (given: Partial<AskView>): AskView => ({
  session: 's', ask: 1, at: 0, row: null, tool: 'shell', title: '', kind: 'execute', risk: 'low', reason: '', subject: 'ls', folder: '/', input: '', diffs: [], text: '', rule: null, more: 0, question: null, ...given,
})

test('a line answers only what it shows wholly', () => {
  expect(isFullyShown(ask({}))).toBe(true)
  expect(isFullyShown(ask({ text: ' ls\n' }))).toBe(true)
  expect(isFullyShown(ask({ text: 'ls; rm -rf /' }))).toBe(false)
  expect(isFullyShown(ask({ subject: 'x'.repeat(161) }))).toBe(false)
  expect(isFullyShown(ask({ subject: 'a\n\n\n\n\n\n\nrm -rf /' }))).toBe(false)
  expect(isFullyShown(ask({ question: { text: 'Which?', choices: [], freeText: true } }))).toBe(false)
  expect(isFullyShown(ask({ diffs: [{ path: 'a', status: 'changed', added: 1, removed: 0, hunks: [], more: 0 }] }))).toBe(false)
  expect(summaryOf(ask({ subject: 'x'.repeat(161) }))).toBe(`${'x'.repeat(160)}…`)
})

test('what is not shown whole counts as cut, and is not answered in a line', () => {
  expect(isTruncated(ask({}))).toBe(false)
  expect(isTruncated(ask({ more: 1 }))).toBe(true)
  expect(isFullyShown(ask({ more: 1 }))).toBe(false)
})
