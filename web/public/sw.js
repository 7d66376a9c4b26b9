// The service worker: shows what is pushed, and lets the installed app open without a network.
//
// A push carries no content, only that something waits and where; so the words here are all that a lock
// screen ever shows. The shell of the app is fetched from the network first and kept for when there is none;
// what the server says (`/ui/`) and its programming interfaces are never kept. Nothing is fetched ahead
// except the shell itself. Plain JavaScript, because nothing bundles it; the build only
// leaves out what we alone read.

'use strict'

const SHELL = 'ropewalk-shell'
/** Where pages leave what proves that this browser is signed in (`lib/sign-in-proof.ts`): a cookie alone opens nothing. */
const PROOF = { cache: 'ropewalk-proof', place: '/proof', header: 'x-ropewalk-proof' }
/** A network that does not answer a visit in this time is none. */
const NETWORK_MS = 4_000
/** What belongs to the app, by how a page asks for it. */
const PARTS = new Set(['script', 'style', 'worker', 'manifest', 'image'])
/** Files of the app that a page can ask to be kept. */
const PARTS_MAX = 50
/** What waits in one session, and is counted. */
const ASKS_MAX = 50

self.addEventListener('install', (event) => {
  event.waitUntil(keepShell().finally(() => self.skipWaiting()))
})

self.addEventListener('activate', (event) => {
  event.waitUntil(self.clients.claim())
})

self.addEventListener('fetch', (event) => {
  const { request } = event
  const url = new URL(request.url)
  if (request.method !== 'GET' || url.origin !== self.location.origin || url.pathname.startsWith('/ui/')) return
  if (request.mode === 'navigate') event.respondWith(visit(event))
  else if (PARTS.has(request.destination)) event.respondWith(part(event))
})

/** The push that is shown last. Two at once would not count each other, and Chromium drops a notification that it is asked about while it shows it. */
let showing = Promise.resolve()

self.addEventListener('push', (event) => {
  const push = read(event.data)
  showing = showing.catch(() => {}).then(() => told(push))
  event.waitUntil(showing)
})

self.addEventListener('notificationclick', (event) => {
  event.notification.close()
  event.waitUntil(open(event.notification.data?.path))
})

self.addEventListener('message', (event) => {
  event.waitUntil(keepParts(event.data?.keep))
})

self.addEventListener('pushsubscriptionchange', (event) => {
  event.waitUntil(subscribeAgain(event))
})

/** The first page and what it names, so that the app opens offline after one visit. */
async function keepShell() {
  const cache = await self.caches.open(SHELL)
  const page = await self.fetch('/', { cache: 'no-cache' })
  if (!isShell(page)) return
  const html = await page.clone().text()
  await cache.put('/', page)
  const parts = [...html.matchAll(/(?:src|href)="(\/[\w.-]+\.(?:js|css))"/g)].map((match) => match[1])
  await Promise.all(parts.map((path) => cache.add(path)))
}

/** What a page had loaded before there was a worker to keep it. */
async function keepParts(given) {
  const paths = (Array.isArray(given) ? given : []).filter((path) => typeof path === 'string' && /^\/[\w.-]+\.(?:js|css)$/.test(path))
  const cache = await self.caches.open(SHELL)
  for (const path of paths.slice(0, PARTS_MAX)) if (!(await cache.match(path))) await cache.add(path)
}

function isShell(response) {
  return response.ok && !response.redirected && (response.headers.get('content-type') ?? '').startsWith('text/html')
}

/** Every address of the app is the same page: one copy of it is enough. */
async function visit(event) {
  const kept = async () => (await (await self.caches.open(SHELL)).match('/')) ?? self.Response.error()
  const fresh = self.fetch(event.request).then((response) => {
    if (isShell(response)) event.waitUntil(put('/', response.clone()))
    return response
  })
  const late = new Promise((resolve) => self.setTimeout(resolve, NETWORK_MS, null))
  try {
    const first = await Promise.race([fresh, late])
    if (first) return first
    const old = await kept()
    return old.type === 'error' ? fresh : old
  } catch {
    return kept()
  }
}

async function part(event) {
  try {
    const response = await self.fetch(event.request)
    if (response.ok) event.waitUntil(put(event.request, response.clone()))
    return response
  } catch {
    return (await (await self.caches.open(SHELL)).match(event.request)) ?? self.Response.error()
  }
}

/** A full disk is no reason to show nothing. */
async function put(key, response) {
  try {
    await (await self.caches.open(SHELL)).put(key, response)
  } catch {
    // It comes from the network the next time too.
  }
}

/** What a push says; anything that is not of this form says only that there is something. */
function read(data) {
  let value = null
  try {
    value = data ? data.json() : null
  } catch {
    // Not JSON: told below without a place.
  }
  const session = typeof value?.session === 'string' && value.session.length <= 200 ? value.session : null
  const ask = Number.isSafeInteger(value?.ask) && value.ask >= 0 ? value.ask : null
  const kind = typeof value?.kind === 'string' ? value.kind : ''
  return { kind, session, ask }
}

async function told({ kind, session, ask }) {
  const place = session === null ? '/inbox' : `/s/${encodeURIComponent(session)}`
  const tag = session === null ? 'ropewalk' : `session ${session}`
  switch (kind) {
    case 'ask':
      return ask === null ? show('An agent needs you', tag, place) : showAsks(tag, place, [...(await asksOf(tag)), ask], true)
    case 'clear':
      return clear(tag, place, ask)
    case 'ended':
      return show('An agent has finished', tag, place)
    case 'failed':
      return show('An agent failed', tag, place)
    case 'test':
      return show('Notifications work', 'test', '/settings/notifications')
    default:
      return show('There is news from an agent', tag, place)
  }
}

function show(title, tag, path, more = {}) {
  const words = { body: 'Tap to open.', tag, renotify: true, icon: '/icon-192.png', badge: '/badge.png', data: { path, asks: [] } }
  return self.registration.showNotification(title, { ...words, ...more })
}

/** One notification for all that a session asks: tapped, it opens what was asked last. */
function showAsks(tag, place, asks, aloud) {
  const open = [...new Set(asks)].slice(-ASKS_MAX)
  return show('An agent needs you', tag, `${place}/ask/${open.at(-1)}`, {
    body: open.length === 1 ? 'Tap to see the request.' : `${open.length} requests are waiting. Tap to see them.`,
    renotify: aloud,
    silent: !aloud,
    requireInteraction: true,
    data: { path: `${place}/ask/${open.at(-1)}`, asks: open },
  })
}

async function asksOf(tag) {
  const shown = await self.registration.getNotifications({ tag })
  return shown.flatMap((one) => (Array.isArray(one.data?.asks) ? one.data.asks : []))
}

/** Somebody has answered: what says that it waits goes away, and what else waits stays. */
async function clear(tag, place, ask) {
  const asks = await asksOf(tag)
  const left = asks.filter((one) => one !== ask)
  if (left.length > 0) return left.length < asks.length ? showAsks(tag, place, left, false) : undefined
  if (asks.length > 0) for (const one of await self.registration.getNotifications({ tag })) one.close()
  // Apple's service ends subscriptions whose pushes show nothing.
  if (await isApple()) return show('Answered', tag, place, { body: 'Someone has already answered.', renotify: false, silent: true })
}

async function isApple() {
  const subscription = await self.registration.pushManager.getSubscription()
  return subscription !== null && /(^|\.)push\.apple\.com$/.test(new URL(subscription.endpoint).hostname)
}

/** Goes to a page of this app: in a window that is open, else in a new one. */
async function open(given) {
  const path = typeof given === 'string' && /^\/(?!\/)/.test(given) ? given : '/'
  const windows = await self.clients.matchAll({ type: 'window', includeUncontrolled: true })
  const best = windows.find((one) => one.focused) ?? windows.find((one) => one.visibilityState === 'visible') ?? windows[0]
  try {
    if (!best) return await self.clients.openWindow(path)
    const focused = await best.focus()
    ;(focused ?? best).postMessage({ go: path })
  } catch {
    await self.clients.openWindow(path)
  }
}

/** The push service has let go of the subscription: a new one is made and told, without a page being open. */
async function subscribeAgain(event) {
  const options = event.oldSubscription?.options
  const made = event.newSubscription ?? (options && (await self.registration.pushManager.subscribe(options)))
  if (!made) return
  const { endpoint, keys } = made.toJSON()
  const subscription = { endpoint, p256dh: keys.p256dh, auth: keys.auth }
  const proof = await (await (await self.caches.open(PROOF.cache)).match(PROOF.place))?.text()
  const headers = { 'content-type': 'application/json', ...(proof ? { [PROOF.header]: proof } : {}) }
  const words = { method: 'POST', headers, body: JSON.stringify({ do: 'push', subscription }) }
  await self.fetch('/ui/hall', words)
}
