// The service worker as it is served, run in a world of its own.

import { describe, expect, test } from 'vitest'
import code from '../public/sw.js?raw'

interface Shown {
  title: string
  tag: string
  renotify: boolean
  silent?: boolean
  body: string
  data: { path: string; asks: number[] }
  close(): void
}

/** A browser around the worker: what it shows, which windows are open, and what it would fetch. */
class World {
  shown: Shown[] = []
  /** No notification can be shown. */
  fails = false
  opened: string[] = []
  windows: { focused: boolean; visibilityState: string; got: unknown[]; focus(): Promise<unknown>; postMessage(data: unknown): void }[] = []
  endpoint = 'https://push.example/1'
  cache = new Map<string, Response>()
  network: ((path: string) => Response) | null = () => new Response('<script src="/app.js"></script><link href="/index.css">', { headers: { 'content-type': 'text/html' } })
  fetched: string[] = []
  told: unknown[] = []
  /** What was shown beside the cookie. */
  proven: (string | undefined)[] = []
  private readonly handlers = new Map<string, (event: unknown) => void>()

  constructor() {
    const registration = {
      showNotification: async (title: string, options: Omit<Shown, 'title' | 'close'>) => {
        if (this.fails) throw new TypeError('no room')
        this.shown = this.shown.filter(({ tag }) => tag !== options.tag)
        const one: Shown = { title, ...options, close: () => { this.shown = this.shown.filter((other) => other !== one) } }
        this.shown.push(one)
      },
      getNotifications: async ({ tag }: { tag: string }) => this.shown.filter((one) => one.tag === tag),
      pushManager: {
        getSubscription: async () => ({ endpoint: this.endpoint }),
        subscribe: async () => ({ toJSON: () => ({ endpoint: 'https://push.example/2', keys: { p256dh: 'p', auth: 'a' } }) }),
      },
    }
    const pathOf = (request: string | { url: string }) => new URL(typeof request === 'string' ? request : request.url, 'https://rope.example').pathname
    const fetch = async (request: string | { url: string }, options?: { body?: string; headers?: Record<string, string> }) => {
      if (options?.body) this.told.push([pathOf(request), JSON.parse(options.body)])
      if (options?.headers) this.proven.push(options.headers['x-ropewalk-proof'])
      this.fetched.push(pathOf(request))
      if (!this.network) throw new TypeError('offline')
      return this.network(pathOf(request))
    }
    const cache = {
      match: async (request: string | { url: string }) => this.cache.get(pathOf(request))?.clone(),
      put: async (request: string | { url: string }, response: Response) => void this.cache.set(pathOf(request), response),
      add: async (path: string) => void this.cache.set(path, await fetch(path)),
    }
    const self = {
      addEventListener: (name: string, handler: (event: unknown) => void) => this.handlers.set(name, handler),
      registration, fetch, Response, setTimeout, clearTimeout,
      location: new URL('https://rope.example/sw.js'),
      caches: { open: async () => cache },
      skipWaiting: async () => {},
      clients: { claim: async () => {}, matchAll: async () => this.windows, openWindow: async (path: string) => void this.opened.push(path) },
    }
    new Function('self', code)(self)
  }

  /** Sends an event and waits for all that it asked to be waited for. */
  async send(name: string, event: object): Promise<Response | undefined> {
    const waits: Promise<unknown>[] = []
    let response: Promise<Response> | undefined
    this.handlers.get(name)?.({ ...event, waitUntil: (wait: Promise<unknown>) => waits.push(wait), respondWith: (one: Promise<Response>) => (response = one) })
    const answer = await response
    for (const wait of waits) await wait
    return answer
  }

  async push(payload: unknown): Promise<void> {
    await this.send('push', { data: payload === undefined ? null : { json: () => (typeof payload === 'string' ? JSON.parse(payload) : payload) } })
  }

  window(focused: boolean, visibilityState = 'visible') {
    const got: unknown[] = []
    const one = { focused, visibilityState, got, focus: async () => one, postMessage: (data: unknown) => void got.push(data) }
    this.windows.push(one)
    return one
  }

  get(path: string, more: object = {}) {
    return this.send('fetch', { request: { url: `https://rope.example${path}`, method: 'GET', mode: 'cors', destination: '', ...more } })
  }
}

const lines = (world: World) => world.shown.map(({ title, tag, data }) => `${title} | ${tag} | ${data.path}`)

describe('a push', () => {
  test('says that something waits, and where, and nothing else', async () => {
    const world = new World()
    await world.push({ v: 1, kind: 'ask', session: 's/1', ask: 7 })
    await world.push({ v: 1, kind: 'ended', session: 's2' })
    await world.push({ v: 1, kind: 'failed', session: 's3' })
    expect(lines(world)).toEqual([
      'An agent needs you | session s/1 | /s/s%2F1/ask/7',
      'An agent has finished | session s2 | /s/s2',
      'An agent failed | session s3 | /s/s3',
    ])
    expect(world.shown.every(({ renotify }) => renotify)).toBe(true)
  })

  test('always shows something, whatever it holds', async () => {
    for (const payload of [undefined, 'not json', 42, { kind: 'later', session: 's' }, { kind: 'ask', session: { x: 1 }, ask: 'one' }, { kind: 'ended', session: 'x'.repeat(9_999) }]) {
      const world = new World()
      await world.push(payload)
      expect(world.shown).toHaveLength(1)
    }
  })

  test('several asks of a session are one notification that counts them', async () => {
    const world = new World()
    await world.push({ kind: 'ask', session: 's', ask: 1 })
    await world.push({ kind: 'ask', session: 's', ask: 2 })
    expect(world.shown).toMatchObject([{ body: '2 requests are waiting. Tap to see them.', data: { path: '/s/s/ask/2', asks: [1, 2] } }])
  })

  test('asks that come at once are counted too, and one that cannot be shown keeps none back', async () => {
    const world = new World()
    await Promise.all([1, 2, 3].map((ask) => world.push({ kind: 'ask', session: 's', ask })))
    expect(world.shown).toMatchObject([{ data: { path: '/s/s/ask/3', asks: [1, 2, 3] } }])
    world.fails = true
    await expect(world.push({ kind: 'ended', session: 'other' })).rejects.toThrow('no room')
    world.fails = false
    await world.push({ kind: 'ended', session: 'other' })
    expect(world.shown).toHaveLength(2)
  })

  test('an answer elsewhere takes away what it answered, quietly', async () => {
    const world = new World()
    await world.push({ kind: 'ask', session: 's', ask: 1 })
    await world.push({ kind: 'ask', session: 's', ask: 2 })
    await world.push({ kind: 'ask', session: 'other', ask: 2 })
    await world.push({ kind: 'clear', session: 's', ask: 2 })
    expect(world.shown.find(({ tag }) => tag === 'session s')).toMatchObject({ silent: true, renotify: false, data: { path: '/s/s/ask/1', asks: [1] } })
    await world.push({ kind: 'clear', session: 's', ask: 1 })
    expect(lines(world)).toEqual(['An agent needs you | session other | /s/other/ask/2'])
  })

  test('an answer to something that is not shown leaves the rest alone', async () => {
    const world = new World()
    await world.push({ kind: 'ended', session: 's' })
    await world.push({ kind: 'clear', session: 's', ask: 9 })
    expect(lines(world)).toEqual(['An agent has finished | session s | /s/s'])
  })

  test('Apple is shown something for every push', async () => {
    const world = new World()
    world.endpoint = 'https://web.push.apple.com/abc'
    await world.push({ kind: 'ask', session: 's', ask: 1 })
    await world.push({ kind: 'clear', session: 's', ask: 1 })
    expect(world.shown).toMatchObject([{ title: 'Answered', silent: true }])
  })
})

describe('a tap', () => {
  const click = (world: World, path: unknown) => world.send('notificationclick', { notification: { close: () => {}, data: { path } } })

  test('opens the very card in a window that is open, the one in front first', async () => {
    const world = new World()
    const [behind, front] = [world.window(false, 'hidden'), world.window(true)]
    await click(world, '/s/a/ask/3')
    expect([behind.got, front.got, world.opened]).toEqual([[], [{ go: '/s/a/ask/3' }], []])
  })

  test('opens a new window if there is none, or none that comes to the front', async () => {
    const world = new World()
    await click(world, '/s/a')
    world.window(false).focus = () => Promise.reject(new Error('not allowed'))
    await click(world, '/s/b')
    expect(world.opened).toEqual(['/s/a', '/s/b'])
  })

  test('never leaves this app', async () => {
    const world = new World()
    for (const path of ['https://evil.example/', '//evil.example/', undefined, 7]) await click(world, path)
    expect(world.opened).toEqual(['/', '/', '/', '/'])
  })
})

describe('the shell', () => {
  test('is kept at installation, and opens every address without a network', async () => {
    const world = new World()
    await world.send('install', {})
    expect([...world.cache.keys()]).toEqual(['/', '/app.js', '/index.css'])
    world.network = null
    expect(await (await world.get('/s/abc/ask/1', { mode: 'navigate' }))?.text()).toContain('/app.js')
    expect((await world.get('/app.js', { destination: 'script' }))?.ok).toBe(true)
    expect((await world.get('/other.js', { destination: 'script' }))?.type).toBe('error')
  })

  test('has what a page loaded before the worker was there, and nothing else', async () => {
    const world = new World()
    await world.send('message', { data: { keep: ['/markdown.js', '/ui/x.js', 'https://evil.example/a.js', '/../a.js', 7] } })
    await world.send('message', { data: null })
    expect([...world.cache.keys()]).toEqual(['/markdown.js'])
  })

  test('comes from the network first, and what came is kept', async () => {
    const world = new World()
    world.network = (path) => new Response(`new ${path}`, { headers: { 'content-type': 'text/html' } })
    expect(await (await world.get('/app.js', { destination: 'script' }))?.text()).toBe('new /app.js')
    expect(await (await world.get('/inbox', { mode: 'navigate' }))?.text()).toBe('new /inbox')
    expect([...world.cache.keys()]).toEqual(['/app.js', '/'])
  })

  test('what the server says is neither answered nor kept here', async () => {
    const world = new World()
    expect(await world.get('/ui/enter')).toBeUndefined()
    expect(await world.get('/ui/page', { mode: 'navigate' })).toBeUndefined()
    expect(await world.get('/session')).toBeUndefined()
    expect(await world.get('/app.js', { method: 'POST', destination: 'script' })).toBeUndefined()
    world.network = () => new Response('no', { status: 403, headers: { 'content-type': 'text/html' } })
    expect((await world.get('/', { mode: 'navigate' }))?.status).toBe(403)
    expect(world.cache.size).toBe(0)
  })
})

test('a subscription that the push service let go of is made anew, and the server is told', async () => {
  const world = new World()
  await world.send('pushsubscriptionchange', { oldSubscription: { options: { userVisibleOnly: true } }, newSubscription: null })
  expect(world.told).toEqual([['/ui/hall', { do: 'push', subscription: { endpoint: 'https://push.example/2', p256dh: 'p', auth: 'a' } }]])
  expect(world.proven).toEqual([undefined])
})

test('the proof that a page left is shown when the server is told', async () => {
  const world = new World()
  world.cache.set('/proof', new Response('of-this-browser'))
  await world.send('pushsubscriptionchange', { oldSubscription: { options: { userVisibleOnly: true } }, newSubscription: null })
  expect(world.proven).toEqual(['of-this-browser'])
})
