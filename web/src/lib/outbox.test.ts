import { beforeEach, expect, test, vi } from 'vitest'
import { fakeBrowser, FakeSocket, last, store } from '../testing/socket'

beforeEach(() => {
  vi.resetModules()
  fakeBrowser()
})

async function start() {
  const line = await import('./connection')
  const outbox = await import('./outbox')
  outbox.startOutbox()
  line.startConnection()
  return { line, ...outbox }
}

const turn = () => new Promise((done) => setTimeout(done, 0))

test('a prompt without a connection is sent when there is one', async () => {
  const { queuePrompt, outbox } = await start()
  queuePrompt('s', 'hello', [])
  expect(last().prompts).toEqual([])
  last().greet()
  expect(last().prompts).toMatchObject([{ session: 's', text: 'hello' }])
  expect(outbox.value).toMatchObject([{ turn: null, failed: null }])
})

test('a prompt whose answer was lost is sent again with the same key', async () => {
  const { queuePrompt, line } = await start()
  last().greet()
  queuePrompt('s', 'hello', [])
  const key = last().prompts[0]?.key
  last().close()
  await turn()
  line.reconnectNow()
  last().greet()
  expect(FakeSocket.all).toHaveLength(2)
  expect(last().prompts).toMatchObject([{ key, text: 'hello' }])
})

test('an acknowledged prompt goes when its turn is on the screen, and is not kept', async () => {
  const { queuePrompt, outbox, confirmArrived } = await start()
  last().greet()
  queuePrompt('s', 'hello', [])
  expect([...store.values()].join()).toContain('hello')
  last().say({ re: last().prompts[0]?.id, ok: { is: 'taken', turn: 4 } })
  await turn()
  expect(outbox.value).toMatchObject([{ turn: 4 }])
  expect([...store.values()].join()).not.toContain('hello')
  confirmArrived('s', new Set([3]))
  expect(outbox.value).toHaveLength(1)
  confirmArrived('s', new Set([4]))
  expect(outbox.value).toEqual([])
})

test('a refused prompt says why, and is not sent again by itself', async () => {
  const { queuePrompt, outbox, line, retryPrompt } = await start()
  last().greet()
  queuePrompt('s', 'hello', [])
  last().say({ re: last().prompts[0]?.id, error: { code: 'forbidden', message: 'You may only look.' } })
  await turn()
  expect(outbox.value).toMatchObject([{ failed: 'You may only look.' }])
  last().close()
  await turn()
  line.reconnectNow()
  last().greet()
  expect(last().prompts).toEqual([])
  const letter = outbox.value[0]
  if (letter) retryPrompt(letter)
  expect(last().prompts).toHaveLength(1)
})

test('a reload keeps what was not acknowledged', async () => {
  const { queuePrompt } = await start()
  queuePrompt('s', 'hello', [])
  vi.resetModules()
  await start()
  last().greet()
  expect(last().prompts).toMatchObject([{ text: 'hello' }])
})

test('two tabs keep the prompts of both', async () => {
  const one = await start()
  vi.resetModules()
  const other = await start()
  one.queuePrompt('s', 'from one', [])
  other.queuePrompt('s', 'from the other', [])
  vi.resetModules()
  const later = await start()
  expect(later.outbox.value.map(({ text }) => text).sort()).toEqual(['from one', 'from the other'])
})

test('a prompt that was on its way may have arrived, also after a reload', async () => {
  const { queuePrompt, outbox } = await start()
  queuePrompt('s', 'hello', [])
  expect(outbox.value).toMatchObject([{ sent: false }])
  last().greet()
  expect(outbox.value).toMatchObject([{ sent: true }])
  last().close()
  vi.resetModules()
  expect((await start()).outbox.value).toMatchObject([{ sent: true, turn: null }])
})

test('a prompt whose turn is over is no longer shown as accepted', async () => {
  const { queuePrompt, outbox, confirmArrived, outboxPromptOf } = await start()
  last().greet()
  queuePrompt('s', 'hello', [])
  last().say({ re: last().prompts[0]?.id, ok: { is: 'taken', turn: 4 } })
  await turn()
  confirmArrived('s', new Set(), 3)
  expect(outbox.value).toHaveLength(1)
  confirmArrived('s', new Set(), 5)
  expect(outbox.value).toEqual([])
  expect(outboxPromptOf('s', 4)).toMatchObject({ text: 'hello' })
})

test('what is too large to keep says so', async () => {
  const { queuePrompt, outbox } = await start()
  queuePrompt('s', 'look', [{ mime: 'image/png', data: 'A'.repeat(1_000_001) }])
  expect(outbox.value).toMatchObject([{ unkept: true }])
})

test('nothing is kept after a sign-out but choices', async () => {
  const { queuePrompt } = await start()
  const { forgetContent, writeStored, writeStoredSoon } = await import('./browser-storage')
  queuePrompt('s', 'hello', [])
  writeStored('choice.theme', 'dark')
  forgetContent()
  queuePrompt('s', 'more', [])
  writeStoredSoon('view', () => 'late')
  writeStored('choice.wrap', false)
  expect([...store.keys()].sort()).toEqual(['ropewalk.choice.theme', 'ropewalk.choice.wrap'])
})

test('a full outbox takes no more', async () => {
  const { queuePrompt, OUTBOX_MAX } = await start()
  for (let count = 0; count < OUTBOX_MAX; count += 1) expect(queuePrompt('s', `${count}`, [])).toBe(true)
  expect(queuePrompt('s', 'one more', [])).toBe(false)
})

test('a handshake that is refused for good signs out, and nothing is asked any more', async () => {
  vi.stubGlobal('fetch', () => Promise.resolve({ status: 401 }))
  const { line } = await start()
  const question = line.sendRequest({ do: 'rules' })
  last().close()
  await expect(question).rejects.toMatchObject({ code: 'forbidden' })
  expect(line.connectionState.value.is).toBe('signedOut')
})

test('frames that nobody knows do no harm', async () => {
  const { line, queuePrompt } = await start()
  last().greet()
  for (const frame of [null, 7, [], {}, { on: 'surprise' }, { re: 99 }, { re: 'x' }, { on: 5 }]) last().say(frame)
  last().onmessage?.({ data: 'no JSON' })
  queuePrompt('s', 'still here', [])
  expect(last().prompts).toHaveLength(1)
  expect(line.connectionState.value.is).toBe('live')
})
