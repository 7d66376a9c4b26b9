import { expect, test } from 'vitest'
import { bytesOf, pushState, subscriptionOf, type PushFacts } from './push'

const good: PushFacts = { secure: true, worker: true, push: true, permission: 'default', apple: false, installed: false, serverKey: 'key', subscribed: false }

test('each reason for which there are no pushes is told from the others', () => {
  const cases: [Partial<PushFacts>, string][] = [
    [{}, 'off'],
    [{ permission: 'granted', subscribed: true }, 'on'],
    [{ permission: 'granted' }, 'off'],
    [{ permission: 'denied', subscribed: true }, 'blocked'],
    [{ serverKey: null }, 'server'],
    [{ secure: false, push: false, worker: false }, 'insecure'],
    [{ push: false, apple: true }, 'homeScreen'],
    [{ push: false, apple: true, installed: true }, 'browser'],
    [{ push: false }, 'browser'],
    [{ permission: null }, 'browser'],
  ]
  for (const [facts, expected] of cases) expect(pushState({ ...good, ...facts }), JSON.stringify(facts)).toBe(expected)
})

test('the server’s key is read as base64url', () => {
  expect([...bytesOf('-_8B')]).toEqual([251, 255, 1])
})

test('a subscription without keys is refused', () => {
  expect(subscriptionOf({ endpoint: 'https://p/1', keys: { p256dh: 'a', auth: 'b' } })).toEqual({ endpoint: 'https://p/1', p256dh: 'a', auth: 'b' })
  expect(() => subscriptionOf({ endpoint: 'https://p/1', keys: {} })).toThrow('without keys')
})
