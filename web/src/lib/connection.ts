// The connection to the server: one WebSocket, requests with their answers, and what is told unasked.
//
// A phone closes sockets within seconds of being put away. So a closed socket is nothing special here:
// the page keeps what it shows, comes back as soon as somebody looks, and asks for what is newer than
// what it has. Nothing in this file knows what frames mean; `watched-session.ts` and `board.ts` listen.

import { signal } from '@preact/signals'
import type { Answered, Hello, HubAnswered, HubRequest, HubTold, Reply, Request, Told, Wrong } from '../wire'
import { writeStoredSoon, readStored } from './browser-storage'
import { onProofStored, proofHeaders, proofProtocols } from './sign-in-proof'

/** The version that this page was built for; set by the build. */
declare const __VERSION__: string

const PROTOCOL = 'ropewalk.v1'
/** Requests that may wait for the connection; one more is refused. */
const WAITING_MAX = 64
const ANSWER_MS = 30_000
const SUSPECT_MS = 4_000
/** A network that is back takes so long until it carries something. */
const SETTLED_MS = 1_000
/** Somebody who looks learns this soon that nobody is at the other end. */
const SILENT_MS = 25_000
/** The first wait after a lost connection, and the longest. */
const BACKOFF_MS = [500, 30_000] as const
/** The code of a close with which the server shows somebody the door. */
const NOT_WELCOME = 1008
/** A socket that does not open is given up after this. */
const OPEN_MS = 10_000

export type ConnectionState =
  | { is: 'connecting' }
  | { is: 'live' }
  /** The next try is at `until`; the last thing heard was at `since`. */
  | { is: 'waiting'; until: number; since: number | null }
  /** The browser itself says that there is no network. */
  | { is: 'offline'; since: number | null }
  /** `again`: the server knows the cookie, and misses the proof that belongs to it. */
  | { is: 'signedOut'; again: boolean }

/** The server said no; its message is for people. */
export class RequestRefused extends Error {
  constructor(readonly code: string, message: string) {
    super(message)
  }
}

/** Nobody knows whether it was done: the connection broke before the answer, or there was none. */
export class ConnectionLost extends Error {}

/** What is asked here: of every server, and of a hub. */
export type AnyRequest = Request | HubRequest
/** What is told unasked: by every server, and by a hub. */
export type ServerMessage = Told | HubTold

interface Answers {
  sessions: 'sessions'
  earlier: 'rows'
  whole: 'rows'
  offer: 'offer'
  open: 'opened'
  prompt: 'taken'
  changes: 'changes'
  find: 'files'
  rules: 'rules'
  devices: 'devices'
  invite: 'invited'
  machines: 'machines'
  share: 'shared'
  shares: 'shares'
  tokens: 'tokens'
  makeToken: 'token'
  people: 'people'
  invitePerson: 'invitedPerson'
  passkeys: 'passkeys'
}
type Is<D extends AnyRequest['do']> = D extends keyof Answers ? Answers[D] : 'done'
export type AnswerTo<R extends AnyRequest> = Extract<Answered | HubAnswered, { is: Is<R['do']> }>

interface Pending {
  request: AnyRequest
  resolve(answered: Answered): void
  reject(error: Error): void
  timer: ReturnType<typeof setTimeout>
  sentAt: number
  /** Goes sealed, or may have to: only what was sealed answers it. */
  sealed: boolean
  /** Was sent once more, because the machine had begun anew. */
  again: boolean
}

export const connectionState = signal<ConnectionState>({ is: 'connecting' })
export const hello = signal<Hello | null>(null)
/** The server's clock minus this one's, in milliseconds. */
export const clockSkew = signal(0)
/** The server has changed since this page was loaded, or says something that it does not know. */
export const outdated = signal(false)

let socket: WebSocket | null = null
let nextId = 1
let tries = 0
/** What was last said of where somebody looks. */
let looking: Extract<Request, { do: 'looking' }> = { do: 'looking', at: null, visible: true }
let heardAt: number | null = readStored<number>('heard')
/** When the browser last said that there is a network again. */
let onlineAt = 0
let retry: ReturnType<typeof setTimeout> | undefined
const inFlight = new Map<number, Pending>()
const waiting: Pending[] = []
const listeners = new Set<(told: ServerMessage) => void>()
const openings = new Set<() => void>()

/** Asks the server. While there is no connection the request waits for one, for a while. */
export function sendRequest<R extends AnyRequest>(request: R): Promise<AnswerTo<R>> {
  return new Promise<Answered>((resolve, reject) => {
    const pending: Pending = { request, resolve, reject, timer: setTimeout(() => expire(pending), ANSWER_MS), sentAt: Infinity, sealed: false, again: false }
    if (connectionState.value.is === 'live') send(pending)
    else if (connectionState.value.is === 'signedOut') fail(pending, new RequestRefused('forbidden', 'You are signed out.'))
    else if (waiting.length >= WAITING_MAX) fail(pending, new ConnectionLost('Not connected to the server. Try again when the connection is back.'))
    else waiting.push(pending)
  }) as Promise<AnswerTo<R>>
}

/** Calls for everything that is told unasked. */
export function onMessage(listener: (told: ServerMessage) => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/** Calls whenever the connection is there (again), after its greeting. */
export function onConnected(listener: () => void): () => void {
  openings.add(listener)
  if (connectionState.value.is === 'live') listener()
  return () => openings.delete(listener)
}

let started = false

/** Connects, once; a page that begins without a connection may come to need one. */
export function startConnection(): void {
  if (started) return
  started = true
  connect()
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState !== 'visible') return
    reconnectNow()
    suspect()
  })
  addEventListener('online', () => {
    onlineAt = Date.now()
    reconnectNow()
  })
  addEventListener('pageshow', reconnectNow)
  onProofStored(() => { if (connectionState.value.is === 'signedOut') location.reload() })
  // The browser knows only whether there is some network: a server on this machine needs none.
  addEventListener('offline', probe)
  setInterval(() => { if (document.visibilityState === 'visible' && Date.now() - (heardAt ?? 0) >= SILENT_MS) probe() }, SILENT_MS / 5)
}

/** Skips the rest of the wait. */
export function reconnectNow(): void {
  if (socket || connectionState.value.is === 'signedOut') return
  tries = 0
  connect()
}

/**
 * A device that slept may hold a socket whose other end is long gone, and be told so minutes later. What
 * is asked on waking (`looking`) must be answered soon, or the socket is given up.
 */
function suspect(): void {
  const [mine, woke] = [socket, Date.now()]
  setTimeout(() => { if (socket === mine && (heardAt ?? 0) < woke && inFlight.size > 0) giveUp() }, SUSPECT_MS)
}

/** Asks something that costs nothing, to hear whether somebody is there. */
function probe(): void {
  if (connectionState.value.is !== 'live') return
  if (inFlight.size === 0) sendRequest({ ...looking, visible: document.visibilityState === 'visible' }).catch(() => {})
  suspect()
}

/** The socket seems to stand, and leads nowhere. */
function giveUp(): void {
  const mine = socket
  if (!mine) return
  mine.onclose = null
  mine.close()
  closed(false)
  reconnectNow()
}

function connect(): void {
  clearTimeout(retry)
  if (connectionState.value.is !== 'connecting') connectionState.value = { is: 'connecting' }
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws'
  const mine = new WebSocket(`${scheme}://${location.host}/ui/socket`, [PROTOCOL, ...proofProtocols()])
  socket = mine
  const early = !navigator.onLine || Date.now() - onlineAt < SETTLED_MS
  const slow = setTimeout(() => mine.close(), OPEN_MS)
  mine.onopen = () => clearTimeout(slow)
  mine.onmessage = (event) => { if (socket === mine) receive(event.data) }
  mine.onclose = (event) => {
    clearTimeout(slow)
    if (socket === mine) closed(event?.code === NOT_WELCOME, early && navigator.onLine)
  }
}

function receive(data: unknown): void {
  if (typeof data !== 'string') return
  heardAt = Date.now()
  writeStoredSoon('heard', () => heardAt)
  let frame: Record<string, unknown>
  try {
    frame = JSON.parse(data) as Record<string, unknown>
  } catch {
    return
  }
  if (typeof frame !== 'object' || frame === null) return
  if (typeof frame.on === 'string') deliverTrusted(frame as unknown as ServerMessage)
  else if (typeof frame.re === 'number') settleRequest(frame as unknown as Reply, false)
}

function deliverTrusted(frame: ServerMessage): void {
  const believed = sealing ? sealing.believed(frame) : frame
  if (believed) deliver(believed)
}

/** Takes what the server tells; also from whoever had to open it first. */
export function deliver(frame: ServerMessage): void {
  if (frame.on === 'hello') {
    tries = 0
    if (frame.version !== __VERSION__) outdated.value = true
    hello.value = frame
    clockSkew.value = frame.now - Date.now()
    connectionState.value = { is: 'live' }
    for (const opening of openings) guarded(opening)
    for (const pending of waiting.splice(0)) send(pending)
  }
  for (const listener of listeners) guarded(() => listener(frame))
}

/** What a frame holds was written by others: one that trips a listener must not stop those that follow. */
function guarded(run: () => void): void {
  try {
    run()
  } catch (error) {
    console.error(error)
    outdated.value = true
  }
}

/** Takes the answer to a request; also from whoever had to open it first. */
export function settleRequest(reply: { re: number; ok?: Reply['ok']; error?: Wrong }, opened: boolean): void {
  const pending = inFlight.get(reply.re)
  if (!pending) return
  drop(reply.re, pending, !opened)
  if (!opened && pending.sealed && !pending.again && reply.error?.code === 'stale' && isRepeatable(pending.request)) {
    pending.again = true
    return send(pending)
  }
  clearTimeout(pending.timer)
  // In the clear a hub can refuse what it could not read, and cannot answer it.
  if (reply.ok && !opened && (pending.sealed || sealing?.mustBeSealed(pending.request))) pending.reject(new RequestRefused('failed', 'The hub itself answered a request that only the machine can answer. Do not trust this hub.'))
  else if (reply.ok) pending.resolve(reply.ok)
  else pending.reject(new RequestRefused(reply.error?.code ?? 'failed', reply.error?.message ?? 'The server refused without giving a reason.'))
}

function send(pending: Pending): void {
  const id = nextId++
  if (pending.request.do === 'looking') looking = pending.request
  pending.sentAt = Date.now()
  inFlight.set(id, pending)
  const sealed = sealing?.seal(pending.request, id)
  if (!sealed) return write(id, pending.request)
  const mine = socket
  // Until it is known that the server may read it, nothing in the clear answers it.
  pending.sealed = true
  sealed.then(
    (request) => {
      if (inFlight.get(id) !== pending) {
        // It was given up meanwhile, and is not sent: what was sealed for it is of no use to the next one.
        if (request !== pending.request) sealing?.lost(id)
        return
      }
      pending.sealed = request !== pending.request
      if (socket === mine) write(id, request)
    },
    (error: unknown) => { if (inFlight.delete(id)) fail(pending, error instanceof Error ? error : new ConnectionLost('Could not encrypt the request. Pair this device again.')) },
  )
}

/** What does no harm when it is asked twice: whoever refuses in the clear may have had it done. A prompt has a key. */
const REPEATABLE = new Set<AnyRequest['do']>(['earlier', 'whole', 'offer', 'changes', 'find', 'rules', 'devices', 'prompt'])

function isRepeatable(request: AnyRequest): boolean {
  return REPEATABLE.has(request.do === 'at' ? request.request.do : request.do)
}

/** It is asked no longer. `lost`: nothing that was sealed has answered it. */
function drop(id: number, pending: Pending, lost: boolean): void {
  inFlight.delete(id)
  if (lost && pending.sealed) sealing?.lost(id)
}

function write(id: number, request: AnyRequest): void {
  socket?.send(JSON.stringify({ id, ...request }))
}

export interface Sealing {
  /** Gives what is sent instead, or the request itself once it is known that the server may read it; nothing if that is known already. */
  seal(request: AnyRequest, id: number): Promise<AnyRequest> | null
  /** Nobody knows whether this one was done. */
  lost(id: number): void
  /** Only what was sealed answers it; it may have turned out after it was asked. */
  mustBeSealed(request: AnyRequest): boolean
  /** As much of what came in the clear as may be in the clear. */
  believed(frame: ServerMessage): ServerMessage | null
}
let sealing: Sealing | null = null

export function setSealing(given: Sealing): void {
  sealing = given
}

function expire(pending: Pending): void {
  const place = waiting.indexOf(pending)
  if (place >= 0) waiting.splice(place, 1)
  for (const [id, other] of inFlight) if (other === pending) drop(id, pending, true)
  pending.reject(new ConnectionLost('The server did not answer in time.'))
  if ((heardAt ?? 0) < pending.sentAt && pending.sentAt < Infinity) giveUp()
}

function fail(pending: Pending, error: Error): void {
  clearTimeout(pending.timer)
  pending.reject(error)
}

/** `early`: it was tried before the network was really back, and failing says nothing of the server. */
function closed(unwelcome: boolean, early = false): void {
  const opened = connectionState.value.is === 'live' && !unwelcome
  socket = null
  for (const [id, pending] of inFlight) {
    drop(id, pending, true)
    fail(pending, new ConnectionLost('The connection was lost before the server answered.'))
  }
  if (opened || early) return later()
  // A refused handshake has no status that a page can read; the same address asked plainly has.
  const shown = proofHeaders()
  fetch('/ui/socket', { cache: 'no-store', headers: shown }).then(
    async (response) => {
      if (response.status !== 401) return later()
      const error = await errorOf(response)
      // Another tab may have signed in meanwhile.
      if (JSON.stringify(shown) !== JSON.stringify(proofHeaders())) later()
      else signOut(error === 'sign_in_again')
    },
    later,
  )
}

/** The server's word for why. */
async function errorOf(response: Response): Promise<unknown> {
  try {
    return ((await response.json()) as { error?: unknown }).error
  } catch {
    return null
  }
}

function signOut(again: boolean): void {
  connectionState.value = { is: 'signedOut', again }
  for (const pending of waiting.splice(0)) fail(pending, new RequestRefused('forbidden', 'You are signed out.'))
}

function later(): void {
  if (socket) return
  const [first, longest] = BACKOFF_MS
  const wait = Math.min(longest, first * 2 ** tries) * (0.5 + Math.random() / 2)
  tries += 1
  connectionState.value = navigator.onLine ? { is: 'waiting', until: Date.now() + wait, since: heardAt } : { is: 'offline', since: heardAt }
  clearTimeout(retry)
  retry = setTimeout(connect, wait)
}
