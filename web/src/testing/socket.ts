// A browser as far as the connection needs one, and a server at the other end of its socket.

import { vi } from 'vitest'

/** A server at the other end of a socket, as far as the page can tell. */
export class FakeSocket {
  static all: FakeSocket[] = []
  onopen: (() => void) | null = null
  onmessage: ((event: { data: string }) => void) | null = null
  onclose: (() => void) | null = null
  readonly sent: Record<string, unknown>[] = []

  constructor() { FakeSocket.all.push(this) }
  send(text: string): void { this.sent.push(JSON.parse(text) as Record<string, unknown>) }
  close(): void { this.onclose?.() }
  say(frame: unknown): void { this.onmessage?.({ data: JSON.stringify(frame) }) }
  greet(folder = ''): void { this.onopen?.(); this.say({ on: 'hello', version: '', host: '', role: 'owner', device: null, makesRules: true, folder, folders: [], sandbox: '', pushKey: null, now: Date.now() }) }
  get prompts(): Record<string, unknown>[] { return this.sent.filter((one) => one.do === 'prompt') }
}

/** What the browser keeps. */
export const store = new Map<string, string>()

/** The last socket that was opened. */
export const last = () => FakeSocket.all.at(-1) ?? new FakeSocket()

export function fakeBrowser(): void {
  FakeSocket.all = []
  store.clear()
  vi.stubGlobal('WebSocket', FakeSocket)
  vi.stubGlobal('localStorage', { getItem: (key: string) => store.get(key) ?? null, setItem: (key: string, value: string) => store.set(key, value), removeItem: (key: string) => store.delete(key), key: (place: number) => [...store.keys()][place] ?? null, get length() { return store.size } })
  vi.stubGlobal('location', { protocol: 'http:', host: 'here', pathname: '/', search: '', hash: '' })
  vi.stubGlobal('document', { addEventListener: () => {}, visibilityState: 'visible' })
  vi.stubGlobal('addEventListener', () => {})
  vi.stubGlobal('requestAnimationFrame', (run: () => void) => setTimeout(run, 16))
  vi.stubGlobal('navigator', { onLine: true })
  vi.stubGlobal('fetch', () => Promise.resolve({ status: 204 }))
}
