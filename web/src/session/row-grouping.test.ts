import { expect, test } from 'vitest'
import type { Row } from '../wire'
import { layoutRows, reuseBlocks } from './row-grouping'

const base = { rev: 0, at: 0, under: null }

/** `t` tool, `f` failed tool, `T` thought, `s` said, `p` prompt, `e` end of the turn, `>N` inside row N. */
function rows(text: string): Row[] {
  let turn = 0
  return text.split(' ').map((word, place): Row => {
    const id = place + 1
    const [kind, under] = word.split('>')
    if (kind === 'p') turn += 1
    const head = { ...base, id, turn, under: under ? Number(under) : null }
    if (kind === 'p') return { ...head, is: 'prompt', from: 'me', text: '', more: 0, attached: [] }
    if (kind === 's') return { ...head, is: 'said', text: '', more: 0 }
    if (kind === 'T') return { ...head, is: 'thought', text: '', more: 0 }
    if (kind === 'e') return { ...head, is: 'ended', stop: 'endTurn', error: null, elapsedMs: 0, tools: 0, files: 0, costUsd: null }
    return {
      ...head, is: 'tool', call: '', tool: '', title: '', kind: '', state: kind === 'f' ? 'failed' : 'done', reason: null, decided: null, input: '', output: '', more: 0,
      diffs: [{ path: `file${id % 2}`, status: 'changed', added: 0, removed: 0, hunks: [], more: 0 }], places: [], exit: null, signal: null, elapsedMs: null,
    }
  })
}

function check(text: string, expected: string): void {
  const { blocks, inside } = layoutRows(rows(text))
  const shown = blocks.map((block) => (block.is === 'row' ? `${block.id}` : `(${block.ids.join(' ')}: ${block.actions} actions, ${block.files} files, ${block.failed} failed)`)).join(' ')
  const within = [...inside].map(([id, ids]) => ` ${id}<${ids.join(' ')}`).join('')
  expect(shown + within).toBe(expected)
}

test('a running turn shows every row', () => check('p T t t s t', '1 2 3 4 5 6'))
test('the actions of a finished turn fold, between what was said', () => check('p T t t s t f t s e', '1 (2 3 4: 2 actions, 2 files, 0 failed) 5 (6 7 8: 3 actions, 2 files, 1 failed) 9 10'))
test('one action needs no fold', () => check('p t s T s e', '1 2 3 4 5 6'))
test('what a sub-agent did is inside its call', () => check('p t t>2 s>2 t e', '1 (2 5: 2 actions, 2 files, 0 failed) 6 2<3 4'))
test('rows whose call is not here stand for themselves', () => check('p s>99 t', '1 2 3'))
test('turns do not fold into each other', () => check('p t t e p t t', '1 (2 3: 2 actions, 2 files, 0 failed) 4 5 6 7'))

test('what has not changed stays the same object', () => {
  const before = layoutRows(rows('p t t>2 e p t'))
  const after = reuseBlocks(before, layoutRows(rows('p t t>2 e p t t>6')))
  expect(after.blocks.every((block, place) => block === before.blocks[place])).toBe(true)
  expect(after.inside.get(2)).toBe(before.inside.get(2))
  expect(after.inside.get(6)).toEqual([7])
})
