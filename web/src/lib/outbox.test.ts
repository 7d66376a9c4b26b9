import { beforeEach, expect, test, vi } from 'vitest'

/** A server at the other end of a socket, as far as the outbox can tell. */
class FakeSocket {
  static all: FakeSocket[] = []
  onopen: (() => void) | null = null
  onmessage: ((event: { data: string }) => void) | null = null
  onclose: (() => void) | null = null
  readonly sent: Record<string, unknown>[] = []

  constructor() { FakeSocket.all.push(this) }
  send(text: string): void { this.sent.push(JSON.parse(text) as Record<string, unknown>) }
  close(): void { this.onclose?.() }
  say(frame: unknown): void { this.onmessage?.({ data: JSON.stringify(frame) }) }
  greet(): void { this.say({ on: 'hello', version: '', host: '', role: 'owner', device: null, folder: '', folders: [], sandbox: '', pushKey: null, now: Date.now() }) }
  get prompts(): Record<string, unknown>[] { return this.sent.filter((one) => one.do === 'prompt') }
}

const store = new Map<string, string>()

beforeEach(() => {
  vi.resetModules()
  FakeSocket.all = []
  store.clear()
  vi.stubGlobal('WebSocket', FakeSocket)
  vi.stubGlobal('localStorage', { getItem: (key: string) => store.get(key) ?? null, setItem: (key: string, value: string) => store.set(key, value), removeItem: (key: string) => store.delete(key) })
  vi.stubGlobal('location', { protocol: 'http:', host: 'here', pathname: '/', search: '', hash: '' })
  vi.stubGlobal('document', { addEventListener: () => {}, visibilityState: 'visible' })
  vi.stubGlobal('addEventListener', () => {})
  vi.stubGlobal('navigator', { onLine: true })
  vi.stubGlobal('fetch', () => Promise.resolve({ status: 426 }))
})

async function start() {
  const line = await import('./line')
  const outbox = await import('./outbox')
  outbox.startOutbox()
  line.startLine()
  return { line, ...outbox }
}

const last = () => FakeSocket.all.at(-1) ?? new FakeSocket()
const turn = () => new Promise((done) => setTimeout(done, 0))

test('a prompt without a connection is sent when there is one', async () => {
  const { post, outbox } = await start()
  post('s', 'hello', [])
  expect(last().prompts).toEqual([])
  last().greet()
  expect(last().prompts).toMatchObject([{ session: 's', text: 'hello' }])
  expect(outbox.value).toMatchObject([{ turn: null, failed: null }])
})

test('a prompt whose answer was lost is sent again with the same key', async () => {
  const { post, line } = await start()
  last().greet()
  post('s', 'hello', [])
  const key = last().prompts[0]?.key
  last().close()
  await turn()
  line.reconnectNow()
  last().greet()
  expect(FakeSocket.all).toHaveLength(2)
  expect(last().prompts).toMatchObject([{ key, text: 'hello' }])
})

test('an acknowledged prompt goes when its turn is on the screen, and is not kept', async () => {
  const { post, outbox, arrived } = await start()
  last().greet()
  post('s', 'hello', [])
  expect(store.get('ropewalk.outbox')).toContain('hello')
  last().say({ re: last().prompts[0]?.id, ok: { is: 'taken', turn: 4 } })
  await turn()
  expect(outbox.value).toMatchObject([{ turn: 4 }])
  expect(store.get('ropewalk.outbox')).toBe('[]')
  arrived('s', new Set([3]))
  expect(outbox.value).toHaveLength(1)
  arrived('s', new Set([4]))
  expect(outbox.value).toEqual([])
})

test('a refused prompt says why, and is not sent again by itself', async () => {
  const { post, outbox, line, again } = await start()
  last().greet()
  post('s', 'hello', [])
  last().say({ re: last().prompts[0]?.id, error: { code: 'forbidden', message: 'You may only look.' } })
  await turn()
  expect(outbox.value).toMatchObject([{ failed: 'You may only look.' }])
  last().close()
  await turn()
  line.reconnectNow()
  last().greet()
  expect(last().prompts).toEqual([])
  const letter = outbox.value[0]
  if (letter) again(letter)
  expect(last().prompts).toHaveLength(1)
})

test('a reload keeps what was not acknowledged', async () => {
  const { post } = await start()
  post('s', 'hello', [])
  vi.resetModules()
  await start()
  last().greet()
  expect(last().prompts).toMatchObject([{ text: 'hello' }])
})

test('a full outbox takes no more', async () => {
  const { post, OUTBOX_MAX } = await start()
  for (let count = 0; count < OUTBOX_MAX; count += 1) expect(post('s', `${count}`, [])).toBe(true)
  expect(post('s', 'one more', [])).toBe(false)
})

test('a handshake that is refused for good signs out, and nothing is asked any more', async () => {
  vi.stubGlobal('fetch', () => Promise.resolve({ status: 401 }))
  const { line } = await start()
  const question = line.ask({ do: 'rules' })
  last().close()
  await expect(question).rejects.toMatchObject({ code: 'forbidden' })
  expect(line.state.value.is).toBe('signedOut')
})

test('frames that nobody knows do no harm', async () => {
  const { line, post } = await start()
  last().greet()
  for (const frame of [null, 7, [], {}, { on: 'surprise' }, { re: 99 }, { re: 'x' }, { on: 5 }]) last().say(frame)
  last().onmessage?.({ data: 'no JSON' })
  post('s', 'still here', [])
  expect(last().prompts).toHaveLength(1)
  expect(line.state.value.is).toBe('live')
})
