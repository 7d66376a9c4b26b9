import { beforeEach, expect, test, vi } from 'vitest'
import { fakeBrowser, last, store } from '../testing/socket'
import type { Card, Told } from '../wire'
import type { Sealer } from './sealed-connection'

beforeEach(() => {
  vi.resetModules()
  fakeBrowser()
  lost = []
})

const card = (session: string, title: string): Card => ({ session, title, folder: '/home/me', source: 'web', createdAt: 0, updatedAt: 1, state: 'done', line: null, costUsd: null, asks: [] })
const sealedCard = (session: string, sealed: string) => ({ on: 'sealedCard', session, machine: 'vault', state: 'working', asks: [], updatedAt: 3, sealed })
const list = () => last().say({ on: 'cards', cards: [], gone: [], older: null })

/** Opens what is called after what is inside; `wrong` does not fit, `none` has no key. */
const SEALS: Sealer = {
  open: async (frame) => {
    if (!('sealed' in frame) || frame.sealed === 'none') return null
    if (frame.sealed === 'wrong') throw new Error('it does not fit')
    if (frame.on === 'sealedReply') return [{ re: frame.re, ok: { is: 'taken', turn: 4 } }]
    if (frame.on === 'sealedCard') return [{ on: 'cards', cards: [card(frame.session, frame.sealed)], gone: [], older: null }]
    return [{ on: 'over', session: 's', message: frame.sealed }]
  },
  seal: async (machine, session, request) => ({ do: 'sealed', machine, session, sealed: `sealed ${request.do}` }),
  lost: (id) => void lost.push(id),
  pair: () => Promise.reject(new Error('nobody is paired here')),
  paired: async () => [],
  forget: async () => {},
}
let lost: number[] = []

async function start(seals: Sealer = SEALS, before = () => {}) {
  const line = await import('./connection')
  const hub = await import('./hub-state')
  const board = await import('./board')
  const { startFlush } = await import('./flush')
  const sealed = await import('./sealed-connection')
  const session = await import('./watched-session')
  startFlush()
  hub.startHub()
  sealed.startSealed(async () => seals)
  board.startBoard()
  session.startSessions()
  line.startConnection()
  last().greet()
  before()
  last().say({ on: 'machines', machines: [{ id: 'vault', name: 'vault', version: '1', sealed: true, own: true, here: true, seenAt: 0, sessions: ['a', 'b'] }] })
  const titles = () => [...board.cards.value.values()].map(({ title }) => title)
  return { line, ...hub, ...board, ...sealed, ...session, titles }
}

test('a card that can be opened is shown, whether it comes before the list or after it', async () => {
  const { titles, lockOf } = await start()
  last().say(sealedCard('a', 'early'))
  await vi.waitFor(() => expect(lockOf('a')).toBeNull())
  list()
  last().say(sealedCard('b', 'late'))
  await vi.waitFor(() => expect(titles().sort()).toEqual(['early', 'late']))
})

test('without a key a card is locked, with a wrong one it says so, and neither shows anything', async () => {
  const { titles, lockOf } = await start()
  list()
  last().say(sealedCard('a', 'none'))
  last().say(sealedCard('b', 'wrong'))
  await vi.waitFor(() => expect([lockOf('a'), lockOf('b')]).toEqual(['unpaired', 'unreadable']))
  await vi.waitFor(() => expect(titles()).toEqual(['Sealed session', 'Sealed session']))
  last().say(sealedCard('a', 'opened at last'))
  await vi.waitFor(() => expect(titles()).toContain('opened at last'))
  expect(lockOf('a')).toBeNull()
})

test('what is sealed comes out in the order in which it came, however long each takes', async () => {
  const waits: (() => void)[] = []
  const { onMessage } = (await start({ ...SEALS, open: (frame) => new Promise((done) => waits.push(() => done(SEALS.open(frame)))) })).line
  const heard: string[] = []
  onMessage((told) => { if (told.on === 'over') heard.push(told.message) })
  for (const sealed of ['one', 'two', 'three']) last().say({ on: 'sealedView', session: 's', machine: 'vault', from: null, upto: 1, sealed })
  for (let place = 0; place < 3; place += 1) {
    await vi.waitFor(() => expect(waits.length).toBe(place + 1))
    waits[place]?.()
  }
  await vi.waitFor(() => expect(heard).toEqual(['one', 'two', 'three']))
})

test('a request for a sealed machine is sealed, and its answer opened; others go as they are', async () => {
  const { line } = await start()
  const taken = line.sendRequest({ do: 'prompt', session: 'a', key: 'k', text: 'secret', pictures: [] })
  await vi.waitFor(() => expect(last().sent.length).toBe(1))
  expect(last().sent[0]).toMatchObject({ do: 'sealed', machine: 'vault', session: 'a', sealed: 'sealed prompt' })
  expect(JSON.stringify(last().sent)).not.toContain('secret')
  last().say({ on: 'sealedReply', re: last().sent[0]?.id, sealed: 'x' })
  expect((await taken).turn).toBe(4)
  void line.sendRequest({ do: 'at', machine: 'vault', request: { do: 'offer', folder: '/home/me' } }).catch(() => {})
  await vi.waitFor(() => expect(last().sent[1]).toMatchObject({ do: 'sealed', session: null, sealed: 'sealed offer' }))
  void line.sendRequest({ do: 'watch', session: 'a', after: null }).catch(() => {})
  void line.sendRequest({ do: 'prompt', session: 'elsewhere', key: 'k', text: 'plain', pictures: [] }).catch(() => {})
  expect(last().sent.slice(2).map((one) => one.do)).toEqual(['watch', 'prompt'])
})

test('an answer that cannot be opened is told, and so is a request that cannot be sealed', async () => {
  const { line } = await start()
  const asked = line.sendRequest({ do: 'changes', session: 'a' })
  await vi.waitFor(() => expect(last().sent.length).toBe(1))
  last().say({ on: 'sealedReply', re: last().sent[0]?.id, sealed: 'wrong' })
  await expect(asked).rejects.toThrow(/Could not decrypt/)
  vi.resetModules()
  fakeBrowser()
  const other = await start({ ...SEALS, seal: () => Promise.reject(new Error('no key')) })
  await expect(other.line.sendRequest({ do: 'changes', session: 'a' })).rejects.toThrow(/Pair this device/)
  expect(last().sent).toEqual([])
})

test('what a hub answers in the clear to something sealed is not believed, and a refusal is', async () => {
  const { line } = await start()
  const asked = [line.sendRequest({ do: 'changes', session: 'a' }), line.sendRequest({ do: 'changes', session: 'a' })]
  const said = Promise.allSettled(asked)
  await vi.waitFor(() => expect(last().sent.length).toBe(2))
  const [first, second] = last().sent.map(({ id }) => id)
  last().say({ re: first, ok: { is: 'changes', files: [] } })
  last().say({ re: second, error: { code: 'busy', message: 'the machine is away' } })
  expect((await said).map((one) => (one.status === 'rejected' ? one.reason.message : 'believed'))).toEqual([expect.stringContaining('Do not trust'), 'the machine is away'])
  await vi.waitFor(() => expect(lost).toEqual([first, second]))
})

test('an answer that comes before the request is sealed is not believed, neither in the clear nor unopened', async () => {
  const seal: (() => void)[] = []
  const { line } = await start({
    ...SEALS,
    // As whoever opens it does with what answers nothing that was sealed here.
    open: async (frame) => (frame.on === 'sealedReply' ? [{ re: frame.re, ok: { is: 'sealed', sealed: frame.sealed } }] : []),
    seal: (machine, session) => new Promise((done) => seal.push(() => done({ do: 'sealed', machine, session, sealed: 'late' }))),
  })
  void line.sendRequest({ do: 'looking', at: null, visible: true }).catch(() => {})
  const before = Number(last().sent[0]?.id)
  const said = Promise.allSettled([line.sendRequest({ do: 'changes', session: 'a' }), line.sendRequest({ do: 'changes', session: 'a' })])
  await vi.waitFor(() => expect(seal.length).toBe(2))
  last().say({ re: before + 1, ok: { is: 'changes', files: [] } })
  last().say({ on: 'sealedReply', re: before + 2, sealed: 'x' })
  expect((await said).map((one) => (one.status === 'rejected' ? one.reason.message : 'believed'))).toEqual([expect.stringContaining('Do not trust'), expect.stringContaining('Do not trust')])
  for (const done of seal) done()
  await vi.waitFor(() => expect(lost).toEqual([before + 1, before + 2, before + 1, before + 2]))
  expect(last().sent.length).toBe(1)
})

test('nothing that a machine might have sealed is sent before it is known which are, on every connection anew', async () => {
  const { line } = await start()
  last().close()
  await vi.waitFor(() => expect(line.connectionState.value.is).not.toBe('live'))
  line.reconnectNow()
  last().greet()
  void line.sendRequest({ do: 'prompt', session: 'a', key: 'k', text: 'secret', pictures: [] }).catch(() => {})
  void line.sendRequest({ do: 'prompt', session: 'c', key: 'l', text: 'open', pictures: [] }).catch(() => {})
  void line.sendRequest({ do: 'looking', at: null, visible: true }).catch(() => {})
  await Promise.resolve()
  expect(last().sent.map((one) => one.do)).toEqual(['looking'])
  const machine = { id: 'vault', name: 'vault', version: '1', sealed: true, own: true, here: true, seenAt: 0, sessions: ['a'] }
  last().say({ on: 'machines', machines: [machine, { ...machine, id: 'laptop', sealed: false, sessions: ['c'] }] })
  await vi.waitFor(() => expect(last().sent.length).toBe(3))
  expect(last().sent.slice(1).map((one) => one.sealed ?? one.text).sort()).toEqual(['open', 'sealed prompt'])
})

test('a hub cannot talk somebody out of sealing', async () => {
  store.set('ropewalk.sealed.machines', JSON.stringify({ vault: 1 }))
  store.set('ropewalk.sealed.seen', JSON.stringify({ b: { upto: 4, updatedAt: 4 } }))
  const { line, titles } = await start()
  const machine = { id: 'vault', name: 'vault', version: '1', sealed: false, own: true, here: true, seenAt: 0, sessions: ['a'] }
  last().say({ on: 'machines', machines: [machine, { ...machine, id: 'other', sessions: ['b', 'c'] }] })
  await expect(line.sendRequest({ do: 'prompt', session: 'a', key: 'k', text: 'secret', pictures: [] })).rejects.toThrow(/Nothing was sent/)
  await expect(line.sendRequest({ do: 'prompt', session: 'b', key: 'k', text: 'secret', pictures: [] })).rejects.toThrow(/Nothing was sent/)
  await expect(line.sendRequest({ do: 'at', machine: 'vault', request: { do: 'open', folder: null, settings: {} } })).rejects.toThrow(/Nothing was sent/)
  expect(last().sent).toEqual([])
  void line.sendRequest({ do: 'prompt', session: 'c', key: 'k', text: 'never sealed', pictures: [] }).catch(() => {})
  expect(last().sent.length).toBe(1)
  const views: string[] = []
  line.onMessage((told) => { if (told.on === 'view') views.push(told.session) })
  for (const session of ['a', 'b', 'c']) last().say({ on: 'view', session, upto: 1, reset: true, earlier: false, rows: [], appends: [], state: null })
  expect(views).toEqual(['c'])
  last().say({ on: 'cards', cards: [card('a', 'made up'), card('b', 'made up'), card('c', 'real')], gone: [], older: null })
  await vi.waitFor(() => expect(titles()).toEqual(['real']))
})

test('made-up cards of sealed sessions are not shown in search results nor on older pages', async () => {
  const { loadOlder, searchSessions, titles } = await start()
  last().say({ on: 'cards', cards: [], gone: [], older: 'more' })
  await vi.waitFor(async () => expect((await import('./board')).olderCursor.value).toBe('more'))
  const answer = () => last().say({ re: last().sent.at(-1)?.id, ok: { is: 'sessions', cards: [card('a', 'made up'), card('c', 'real')], older: null } })
  const found = searchSessions('up')
  answer()
  expect((await found).map(({ title }) => title)).toEqual(['real'])
  const loading = loadOlder()
  answer()
  await loading
  expect(titles()).toEqual(['real'])
})

test('what came in the clear before a session was known to be sealed is taken back, and asked for anew', async () => {
  const row = { id: 1, rev: 1, at: 0, turn: 1, under: null, is: 'said', text: 'made up', more: 0 }
  const { boardLoaded, titles, watch, watchedSession } = await start(SEALS, () => {
    last().say({ on: 'cards', cards: [card('a', 'made up'), card('c', 'real'), card('d', 'made up')], gone: [], older: null })
  })
  await vi.waitFor(() => expect([boardLoaded.value, titles()]).toEqual([true, ['real', 'made up']]))
  for (const session of ['c', 'd']) watch(session)
  for (const session of ['c', 'd']) last().say({ on: 'view', session, upto: 1, reset: true, earlier: false, rows: [row], appends: [], state: null })
  const shown = () => ['c', 'd'].map((session) => watchedSession(session)?.rows.ids.value.length)
  await vi.waitFor(() => expect(shown()).toEqual([1, 1]))
  // No machine is said to have it, and something sealed comes of it.
  last().say({ on: 'sealedView', session: 'd', machine: 'vault', from: null, upto: 1, sealed: 'wrong' })
  await vi.waitFor(() => expect([titles(), shown()]).toEqual([['real'], [1, 0]]))
  last().say({ on: 'machines', machines: [{ id: 'vault', name: 'vault', version: '1', sealed: true, own: true, here: true, seenAt: 0, sessions: ['a', 'b', 'c'] }] })
  await vi.waitFor(() => expect([titles(), shown()]).toEqual([[], [0, 0]]))
  expect(last().sent.filter((one) => one.do === 'watch').map((one) => one.session)).toEqual(['c', 'd', 'd', 'c'])
})

test('what was asked in the clear is not answered in the clear once it is known to be sealed', async () => {
  const { line } = await start()
  const early = line.sendRequest({ do: 'changes', session: 'c' })
  const late = line.sendRequest({ do: 'changes', session: 'c' })
  const [first, second] = last().sent.map(({ id }) => id)
  last().say({ re: first, ok: { is: 'changes', files: [] } })
  await expect(early).resolves.toMatchObject({ is: 'changes' })
  last().say({ on: 'machines', machines: [{ id: 'vault', name: 'vault', version: '1', sealed: true, own: true, here: true, seenAt: 0, sessions: ['c'] }] })
  last().say({ re: second, ok: { is: 'changes', files: [] } })
  await expect(late).rejects.toThrow(/Do not trust/)
})

test('a hub that poses as a machine gets nothing of what was sealed', async () => {
  store.set('ropewalk.sealed.seen', JSON.stringify({ b: { upto: 4, updatedAt: 4 } }))
  const { line, machines } = await start()
  last().close()
  await vi.waitFor(() => expect(line.connectionState.value.is).not.toBe('live'))
  line.reconnectNow()
  last().greet('/home/me')
  machines.value = []
  await expect(line.sendRequest({ do: 'prompt', session: 'b', key: 'k', text: 'secret', pictures: [] })).rejects.toThrow(/Nothing was sent/)
  void line.sendRequest({ do: 'prompt', session: 'c', key: 'k', text: 'never sealed', pictures: [] }).catch(() => {})
  expect(last().prompts.map(({ text }) => text)).toEqual(['never sealed'])
})

test('whoever signs out leaves no key behind, whichever machines the hub speaks of', async () => {
  const keys = new Set(['vault', 'attic'])
  store.set('ropewalk.sealed.machines', JSON.stringify({ vault: 1, attic: 1 }))
  const { forgetKeys } = await start({ ...SEALS, paired: async () => [...keys], forget: async (machine) => void keys.delete(machine) })
  last().say({ on: 'machines', machines: [] })
  await forgetKeys()
  expect([...keys, ...store.keys()].filter((name) => !name.includes('heard'))).toEqual([])
})

test('a server that signs a browser out does not make it forget what is sealed', async () => {
  store.set('ropewalk.sealed.machines', JSON.stringify({ vault: 1 }))
  store.set('ropewalk.cards', JSON.stringify([]))
  const { forgetContent } = await import('./browser-storage')
  forgetContent()
  expect([...store.keys()]).toEqual(['ropewalk.sealed.machines'])
})

test('nothing that was opened is left in the browser, also where the hub says that nothing is sealed', async () => {
  let leave = () => {}
  vi.stubGlobal('addEventListener', (name: string, run: () => void) => { if (name === 'pagehide') leave = run })
  ;(await import('./browser-storage')).startStorage()
  const view = (session: string): Told => ({ on: 'view', session, upto: 1, reset: true, earlier: false, rows: [], appends: [], state: null })
  const { watch } = await start({ ...SEALS, open: async (frame) => (frame.on === 'sealedView' ? [view(frame.session)] : SEALS.open(frame)) })
  last().say({ on: 'machines', machines: [] })
  last().say({ on: 'cards', cards: [card('c', 'plain')], gone: [], older: null })
  last().say(sealedCard('a', 'secret'))
  const opened = watch('a')
  last().say({ on: 'sealedView', session: 'a', machine: 'vault', from: null, upto: 1, sealed: 'x' })
  await vi.waitFor(() => expect(opened.fresh.value).toBe(true))
  leave()
  expect([store.get('ropewalk.cards')?.match(/plain|secret/g), store.has('ropewalk.view')]).toEqual([['plain'], false])
  const plain = watch('c')
  last().say(view('c'))
  await vi.waitFor(() => expect(plain.fresh.value).toBe(true))
  leave()
  expect(store.get('ropewalk.view')).toContain('"session":"c"')
})

test('a machine that began anew is asked once more for what does no harm, and for nothing else', async () => {
  const { line } = await start()
  const sealed = () => last().sent.filter((one) => one.do === 'sealed')
  const refuse = (place: number) => last().say({ re: sealed()[place]?.id, error: { code: 'stale', message: 'begin another' } })
  const read = line.sendRequest({ do: 'whole', session: 'a', row: 1 })
  await vi.waitFor(() => expect(sealed().length).toBe(1))
  refuse(0)
  await vi.waitFor(() => expect(sealed().length).toBe(2))
  refuse(1)
  await expect(read).rejects.toMatchObject({ code: 'stale' })
  const cancelled = line.sendRequest({ do: 'cancel', session: 'a', turn: null })
  await vi.waitFor(() => expect(sealed().length).toBe(3))
  refuse(2)
  await expect(cancelled).rejects.toMatchObject({ code: 'stale' })
  expect(sealed().length).toBe(3)
})
