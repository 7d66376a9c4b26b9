import { beforeEach, expect, test, vi } from 'vitest'
import { fakeBrowser, FakeSocket, last, store } from '../testing/socket'
import type { Row } from '../wire'

beforeEach(() => {
  vi.resetModules()
  vi.useFakeTimers()
  fakeBrowser()
})

const said = (id: number): Row => ({ id, rev: id, at: 0, turn: 1, under: null, is: 'said', text: `${id}`, more: 0 })
const asked = (what: string) => last().sent.filter((one) => one.do === what)

async function start() {
  const line = await import('./connection')
  const session = await import('./watched-session')
  session.startSessions()
  line.startConnection()
  return { line, ...session }
}

function view(rows: Row[]): void {
  last().say({ on: 'view', session: 's', upto: 9, reset: true, earlier: true, rows, appends: [], state: null })
  vi.advanceTimersByTime(100)
}

test('a page of earlier rows that comes after a reset is not put before a gap', async () => {
  const { watch, loadEarlier } = await start()
  last().greet()
  const one = watch('s')
  view([said(50), said(51)])
  const loading = loadEarlier(one)
  view([said(500), said(501)])
  last().say({ re: asked('earlier')[0]?.id, ok: { is: 'rows', rows: [said(48), said(49)], earlier: true } })
  await loading
  expect(one.rows.ids.value).toEqual([500, 501])
})

test('a session that is opened before there is a connection is watched once', async () => {
  const { watch } = await start()
  watch('s')
  last().greet()
  expect(asked('watch')).toHaveLength(1)
})

test('nothing of a deleted session is kept', async () => {
  const { watch, forgetSession } = await start()
  const { startStorage } = await import('./browser-storage')
  const { setDraft } = await import('./draft')
  startStorage()
  last().greet()
  watch('s')
  setDraft('s', 'half a word')
  view([said(50)])
  vi.advanceTimersByTime(60_000)
  expect([...store.keys()]).toContain('ropewalk.view')
  forgetSession('s')
  view([said(51)])
  vi.advanceTimersByTime(60_000)
  expect([...store.keys()].filter((name) => /view|draft/.test(name))).toEqual([])
})

test('a line that is silent is asked, and given up if nobody answers', async () => {
  const { line } = await start()
  last().greet()
  vi.advanceTimersByTime(26_000)
  expect(asked('looking')).toHaveLength(1)
  last().say({ re: asked('looking')[0]?.id, ok: { is: 'done' } })
  vi.advanceTimersByTime(10_000)
  expect([line.connectionState.value.is, FakeSocket.all.length]).toEqual(['live', 1])
  vi.advanceTimersByTime(50_000)
  expect(FakeSocket.all.length).toBeGreaterThan(1)
  expect(line.connectionState.value.is).not.toBe('live')
})

test('a browser that says it is offline still tries', async () => {
  const { line } = await start()
  last().greet()
  vi.stubGlobal('navigator', { onLine: false })
  last().close()
  expect(line.connectionState.value.is).toBe('offline')
  vi.advanceTimersByTime(60_000)
  expect(FakeSocket.all.length).toBeGreaterThan(1)
})
