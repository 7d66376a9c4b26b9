import { describe, expect, test } from 'vitest'
import { numbers } from '../testing/fake-dom'
import type { Row } from '../wire'
import { HELD_MAX, Rows } from './rows'

function said(id: number, rev: number, text: string): Row {
  return { id, rev, at: 0, turn: 1, under: null, is: 'said', text, more: 0 }
}

function tool(id: number, output: string): Row {
  return {
    id, rev: id, at: 0, turn: 1, under: null, is: 'tool', call: 'c', tool: 'bash', title: '', kind: 'execute', state: 'running', reason: null, decided: null, input: '', output, more: 0,
    diffs: [], places: [], exit: null, signal: null, elapsedMs: null,
  }
}

function shown(rows: Rows): string {
  return rows.ids.value.map((id) => {
    const row = rows.get(id)?.value
    return `${id}:${row?.is === 'said' ? row.text : row?.is === 'tool' ? row.output : row?.is}`
  }).join(' ')
}

describe('rows', () => {
  test('stand in the order of their ids, however they come', () => {
    const rows = new Rows()
    rows.put([said(5, 5, 'b')])
    rows.put([said(9, 9, 'c'), said(2, 2, 'a')])
    expect(shown(rows)).toBe('2:a 5:b 9:c')
  })

  test('a change that is older than what is shown does nothing', () => {
    const rows = new Rows()
    rows.put([said(1, 9, 'new')])
    rows.put([said(1, 4, 'old')])
    rows.append({ row: 1, rev: 9, text: ' twice' })
    rows.append({ row: 1, rev: 3, text: ' late' })
    expect(shown(rows)).toBe('1:new')
  })

  test('text and output grow', () => {
    const rows = new Rows()
    rows.put([said(1, 1, 'a'), tool(2, 'x')])
    rows.append({ row: 1, rev: 3, text: 'b' })
    rows.append({ row: 2, rev: 4, text: 'y' })
    rows.append({ row: 77, rev: 5, text: 'of nobody' })
    expect(shown(rows)).toBe('1:ab 2:xy')
  })

  test('only rows that change tell their readers', () => {
    const rows = new Rows()
    rows.put([said(1, 1, 'a'), said(2, 2, 'b')])
    const [ids, first] = [rows.ids.value, rows.get(1)?.value]
    rows.append({ row: 2, rev: 3, text: '!' })
    expect(rows.ids.value).toBe(ids)
    expect(rows.get(1)?.value).toBe(first)
  })

  test('a reset leaves what it names, and keeps the signals of rows that stay', () => {
    const rows = new Rows()
    rows.put([said(1, 1, 'a'), said(2, 2, 'b')])
    const second = rows.get(2)
    rows.reset([said(2, 2, 'b'), said(3, 3, 'c')], true)
    expect(shown(rows)).toBe('2:b 3:c')
    expect(rows.get(2)).toBe(second)
    expect(rows.earlier.value).toBe(true)
  })

  test('a flood of output is bounded, and what is gone is counted', () => {
    const rows = new Rows()
    rows.put([tool(1, ''), said(2, 2, '')])
    for (let rev = 3; rev < 3_000; rev += 1) {
      rows.append({ row: 1, rev, text: `${'x'.repeat(99)}\n` })
      rows.append({ row: 2, rev, text: 'y'.repeat(100) })
    }
    const [output, text] = [rows.get(1)?.value, rows.get(2)?.value]
    if (output?.is !== 'tool' || text?.is !== 'said') throw new Error('kinds')
    expect(output.output.length + output.more).toBe(2_997 * 100)
    expect(output.output.length).toBeLessThanOrEqual(24 << 10)
    expect(output.output.startsWith('x'.repeat(99))).toBe(true)
    expect(text.text.length + text.more).toBe(2_997 * 100)
  })

  test('who reads far back lets the newest go, and takes none with a gap before it', () => {
    const rows = new Rows()
    rows.put([said(100_000, 1, 'last')])
    rows.prepend(Array.from({ length: HELD_MAX }, (_, place) => said(place + 1, 1, 'x')), true)
    expect(rows.cut.value).toBe(true)
    expect(rows.ids.value.length).toBe(HELD_MAX)
    rows.put([said(100_001, 2, 'newer')])
    expect(rows.get(100_001)).toBeUndefined()
    rows.reset([said(100_001, 2, 'newer')], true)
    expect(shown(rows)).toBe('100001:newer')
  })

  test('whatever frames are told twice or late, the end is the same', () => {
    for (let seed = 1; seed <= 100; seed += 1) {
      const next = numbers(seed)
      const [once, often] = [new Rows(), new Rows()]
      const frames: Row[] = []
      for (let rev = 1; rev <= 60; rev += 1) frames.push(said(next(12) + 1, rev, `v${rev}`))
      for (const frame of frames) once.put([frame])
      for (const [place, frame] of frames.entries()) {
        often.put([frame])
        const again = frames[next(place + 1)]
        if (again) often.put([again])
      }
      expect(shown(often)).toBe(shown(once))
    }
  })
})
