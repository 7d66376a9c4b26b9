import { beforeEach, expect, test, vi } from 'vitest'
import type { Card } from '../wire'
import { fakeBrowser, last } from '../testing/socket'

beforeEach(() => {
  vi.resetModules()
  fakeBrowser()
  localStorage.setItem('ropewalk.sealed.machines', JSON.stringify({ vault: 2 }))
  localStorage.setItem('ropewalk.sealed.seen', JSON.stringify({ a: { machine: 'vault', upto: 7, updatedAt: 7 } }))
})

const card = (session: string): Card => ({ session, title: session, folder: '', source: 'web', createdAt: 0, updatedAt: 1, state: 'done', line: null, costUsd: null, asks: [] })
const view = (session: string) => ({ on: 'view', session, upto: 9, reset: true, earlier: false, rows: [], appends: [], state: null })

async function start() {
  const line = await import('./line')
  const { startHub } = await import('./hub')
  const { startSealed } = await import('./sealed')
  const asked: unknown[] = []
  startHub()
  startSealed(async () => ({
    open: async () => null,
    seal: async (machine, session, request) => { asked.push([machine, session, request.do]); return { do: 'sealed', machine, session, sealed: 'AAAA' } },
    lost: () => {}, pair: async () => ({ machine: '', role: '', words: '' }), paired: () => [], forget: async () => {},
  }))
  const heard: unknown[] = []
  line.onTold((frame) => heard.push(frame))
  line.startLine()
  last().greet()
  // The hub says that nothing is sealed here, and that the session is another machine's.
  last().say({ on: 'machines', machines: [{ id: 'vault', name: 'vault', version: '1', sealed: false, own: true, here: true, seenAt: 0, sessions: [] }, { id: 'other', name: 'other', version: '1', sealed: false, own: true, here: true, seenAt: 0, sessions: ['a', 'b'] }] })
  return { ...line, asked, heard }
}

test('a hub that calls a sealed machine an open one is sent nothing in the clear', async () => {
  const { ask, asked } = await start()
  ask({ do: 'prompt', session: 'a', key: 'k', text: 'secret words', pictures: [] }).catch(() => {})
  ask({ do: 'at', machine: 'vault', request: { do: 'rules' } }).catch(() => {})
  await vi.waitFor(() => expect(asked).toEqual([['vault', 'a', 'prompt'], ['vault', null, 'rules']]))
  await vi.waitFor(() => expect(last().sent.filter((one) => one.do === 'sealed').length).toBe(2))
  expect(JSON.stringify(last().sent)).not.toContain('secret words')
})

test('what a hub says in the clear of a sealed session is not shown', async () => {
  const { heard } = await start()
  heard.length = 0
  last().say(view('a'))
  last().say({ on: 'cards', cards: [card('a'), card('b')], gone: [], older: null })
  last().say(view('b'))
  expect(heard).toEqual([{ on: 'cards', cards: [card('b')], gone: [], older: null }, view('b')])
})

test('a page of the list has no sealed session in the clear either', async () => {
  const { ask } = await start()
  const answered = ask({ do: 'sessions', before: null, search: null })
  const sent = last().sent.at(-1)!
  last().say({ re: sent.id, ok: { is: 'sessions', cards: [card('a'), card('b')], older: null } })
  expect((await answered).cards).toEqual([card('b')])
})
