import { beforeEach, expect, test, vi } from 'vitest'
import { fakeBrowser, last, store } from '../testing/socket'
import type { Card, MachineView } from '../wire'

beforeEach(() => {
  vi.resetModules()
  vi.useFakeTimers()
  fakeBrowser()
})

const machine = (id: string, sessions: string[], more: Partial<MachineView> = {}): MachineView => ({ id, name: id, version: '1', sealed: false, own: true, here: true, seenAt: 5, sessions, ...more })
const card = (session: string, title = session): Card => ({ session, title, folder: '/home/me', source: 'web', createdAt: 0, updatedAt: 1, state: 'done', line: null, costUsd: null, asks: [] })
const me = { id: 'p', name: 'dev', admin: true, createdAt: 0, seenAt: null, passkeys: 0 }

async function start() {
  const line = await import('./connection')
  const hub = await import('./hub-state')
  const board = await import('./board')
  hub.startHub()
  board.startBoard()
  line.startConnection()
  return { line, ...hub, ...board }
}

test('a server that says nothing of it is no hub', async () => {
  const { hubVisit, machineOf, isGuest } = await start()
  last().say({ on: 'hello', version: '', host: 'laptop', role: 'owner', device: null, makesRules: true, folder: '/home/me', folders: [], sandbox: '', pushKey: null, now: 0 })
  expect([hubVisit.value, machineOf('s'), isGuest.value]).toEqual([null, undefined, false])
})

test('a hub is known by its greeting, before it says who one is', async () => {
  const { isAtHub } = await start()
  expect(isAtHub()).toBe(false)
  last().greet()
  expect(isAtHub()).toBe(true)
})

test('a session is found on its machine, and one that is away says so', async () => {
  const { machineOf, offlineMachineOf } = await start()
  last().greet()
  last().say({ on: 'machines', machines: [machine('laptop', ['a', 'b']), machine('attic', ['c'], { here: false })] })
  expect(machineOf('b')?.id).toBe('laptop')
  expect(offlineMachineOf('b')).toBeUndefined()
  expect(offlineMachineOf('c')?.id).toBe('attic')
  expect(machineOf('d')).toBeUndefined()
  last().say({ on: 'machines', machines: [machine('attic', ['c'])] })
  expect(offlineMachineOf('c')).toBeUndefined()
})

test('a machine that is gone is chosen no longer', async () => {
  const { machineFilter } = await start()
  last().greet()
  last().say({ on: 'machines', machines: [machine('laptop', []), machine('attic', [])] })
  machineFilter.value = 'attic'
  last().say({ on: 'machines', machines: [machine('laptop', []), machine('attic', [], { here: false })] })
  expect(machineFilter.value).toBe('attic')
  last().say({ on: 'machines', machines: [machine('laptop', [])] })
  expect(machineFilter.value).toBeNull()
})

test('whoever has no name here came by a link', async () => {
  const { isGuest, hubVisit } = await start()
  last().greet()
  last().say({ on: 'at', person: me, session: null, until: null })
  expect(isGuest.value).toBe(false)
  last().say({ on: 'at', person: null, session: 's', until: 9 })
  expect([isGuest.value, hubVisit.value?.session, hubVisit.value?.until]).toEqual([true, 's', 9])
})

test('what names no session is asked of a machine, and answered as itself', async () => {
  const { sendToMachine } = await start()
  last().greet()
  const offered = sendToMachine('laptop', { do: 'offer', folder: null })
  const { id, ...request } = last().sent[0] ?? {}
  expect(request).toEqual({ do: 'at', machine: 'laptop', request: { do: 'offer', folder: null } })
  last().say({ re: id, ok: { is: 'offer', folder: '/home/me', settings: [], commands: [] } })
  expect((await offered).folder).toBe('/home/me')
})

test('what is sealed is not left open in the browser', async () => {
  await start()
  last().greet()
  last().say({ on: 'machines', machines: [machine('laptop', ['a']), machine('vault', ['b'], { sealed: true })] })
  last().say({ on: 'cards', cards: [card('a', 'plain'), card('b', 'secret')], gone: [], older: null })
  vi.advanceTimersByTime(60_000)
  expect(store.get('ropewalk.cards')).toContain('plain')
  expect(store.get('ropewalk.cards')).not.toContain('secret')
})

test('a session that was just opened is waited for, and not for ever', async () => {
  const { waitUntilListed } = await start()
  last().greet()
  const soon = waitUntilListed('new')
  const never = waitUntilListed('lost')
  last().say({ on: 'machines', machines: [machine('laptop', ['new'])] })
  expect(await soon).toBe(true)
  expect(await waitUntilListed('new')).toBe(true)
  vi.advanceTimersByTime(60_000)
  expect(await never).toBe(false)
})
