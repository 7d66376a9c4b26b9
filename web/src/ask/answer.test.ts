import { beforeEach, expect, test, vi } from 'vitest'
import { fakeBrowser, last } from '../testing/socket'

beforeEach(() => {
  vi.resetModules()
  vi.useFakeTimers()
  fakeBrowser()
})

async function start() {
  const line = await import('../lib/connection')
  const hub = await import('../lib/hub-state')
  hub.startHub()
  line.startConnection()
  return import('./answer')
}

test('an answer for good is offered on the machine itself', async () => {
  const { mayAnswerAlways } = await start()
  last().say({ on: 'hello', version: '', host: 'laptop', role: 'owner', device: null, makesRules: true, folder: '/home/me', folders: [], sandbox: '', pushKey: null, now: 0 })
  expect(mayAnswerAlways()).toBe(true)
})

test('an answer for good is not offered at a hub, whose machines would refuse it', async () => {
  const { mayAnswerAlways } = await start()
  last().greet()
  expect(mayAnswerAlways()).toBe(false)
})
