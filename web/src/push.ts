// Push messages of this browser: whether they can be had here, and how they are turned on and off.
//
// There are many reasons why a browser has none, and each has another way out; so where somebody stands is
// worked out from plain facts, and the page says the one thing that helps.

import { writeStored, readStored } from './lib/browser-storage'
import { sendRequest, hello, onConnected } from './lib/connection'
import type { Subscription } from './wire'
import { registerWorker } from './register-service-worker'

/** What is known of this browser and of the server. */
export interface PushFacts {
  /** The page came by a way that browsers trust: TLS, or this very machine. */
  secure: boolean
  worker: boolean
  push: boolean
  permission: NotificationPermission | null
  apple: boolean
  /** Opened from the Home Screen. */
  installed: boolean
  serverKey: string | null
  subscribed: boolean
}

export type PushState =
  /** Cannot be had: not over plain HTTP, not before it is on the Home Screen, not in this browser, not on this server. */
  | 'insecure' | 'homeScreen' | 'browser' | 'server'
  /** The person, or their browser, has said no. */
  | 'blocked'
  | 'off'
  | 'on'

export function pushState(facts: PushFacts): PushState {
  if (!facts.secure) return 'insecure'
  // On iPhones and iPads only apps of the Home Screen have push; the browser hides it elsewhere.
  if (!facts.push && facts.apple && !facts.installed) return 'homeScreen'
  if (!facts.push || !facts.worker || facts.permission === null) return 'browser'
  if (facts.serverKey === null) return 'server'
  if (facts.permission === 'denied') return 'blocked'
  return facts.subscribed && facts.permission === 'granted' ? 'on' : 'off'
}

export async function pushFacts(): Promise<PushFacts> {
  const apple = /iPhone|iPad|iPod/.test(navigator.userAgent) || (navigator.userAgent.includes('Mac') && navigator.maxTouchPoints > 1)
  const registration = await current()
  return {
    secure: isSecureContext,
    worker: 'serviceWorker' in navigator,
    push: 'PushManager' in globalThis,
    permission: typeof Notification === 'undefined' ? null : Notification.permission,
    apple,
    installed: matchMedia('(display-mode: standalone)').matches || (navigator as { standalone?: boolean }).standalone === true,
    serverKey: hello.value?.pushKey ?? null,
    subscribed: readStored<boolean>(WANTED) === true && (await registration?.pushManager?.getSubscription().catch(() => null)) != null,
  }
}

/** The browser may keep a subscription of somebody who was signed out; what was asked for here decides. */
const WANTED = 'choice.push'

/** Why it could not be turned on, in words for a person. */
export class PushFailed extends Error {}

/** Only ever after a tap: a browser asks the person, and remembers a no. */
export async function turnOn(serverKey: string): Promise<void> {
  if ((await Notification.requestPermission()) !== 'granted') throw new PushFailed('Notifications were not allowed. Allow them in the browser’s site settings, then try again.')
  const registration = await registerWorker().catch(() => {
    throw new PushFailed('The browser did not start the service worker, probably because it does not trust the server’s certificate.')
  })
  await ready(registration)
  const subscription = await subscribe(registration, serverKey).catch((error: unknown) => {
    throw new PushFailed(`The browser could not reach its push service${error instanceof Error ? ` (${error.message})` : ''}. Try again when you are online.`)
  })
  await sendRequest({ do: 'push', subscription })
  writeStored(WANTED, true)
}

export async function turnOff(): Promise<void> {
  writeStored(WANTED, null)
  const subscription = await (await current())?.pushManager.getSubscription()
  await subscription?.unsubscribe()
  await sendRequest({ do: 'push', subscription: null })
}

/** Tells the server of the subscription that there is, once there is a connection. */
export async function renewSubscription(): Promise<void> {
  if (readStored<boolean>(WANTED) !== true) return
  const stop = onConnected(() => {
    // Told within this call if the connection is there already, when `stop` is not yet.
    queueMicrotask(() => stop())
    void resend().catch(() => {})
  })
}

async function resend(): Promise<void> {
  const registration = await current()
  const serverKey = hello.value?.pushKey
  if (!registration || !serverKey) return
  await sendRequest({ do: 'push', subscription: await subscribe(registration, serverKey) })
}

async function subscribe(registration: ServiceWorkerRegistration, serverKey: string): Promise<Subscription> {
  const key = bytesOf(serverKey)
  let found = await registration.pushManager.getSubscription()
  if (found && !isSameKey(found.options.applicationServerKey, key)) {
    await found.unsubscribe()
    found = null
  }
  found ??= await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key })
  return subscriptionOf(found.toJSON())
}

export function subscriptionOf({ endpoint, keys }: PushSubscriptionJSON): Subscription {
  if (!endpoint || !keys?.p256dh || !keys.auth) throw new PushFailed('The browser created a push subscription without keys. Try again.')
  return { endpoint, p256dh: keys.p256dh, auth: keys.auth }
}

/** Base64url, as the server writes its key. */
export function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.replace(/-/g, '+').replace(/_/g, '/'))
  return Uint8Array.from(binary, (char) => char.charCodeAt(0))
}

function isSameKey(of: ArrayBuffer | null, key: Uint8Array): boolean {
  // Some browsers do not say which key it was made with; then it is taken for the same.
  if (of === null) return true
  const bytes = new Uint8Array(of)
  return bytes.length === key.length && bytes.every((byte, at) => byte === key[at])
}

async function current(): Promise<ServiceWorkerRegistration | undefined> {
  if (!('serviceWorker' in navigator)) return undefined
  return navigator.serviceWorker.getRegistration().catch(() => undefined)
}

/** A worker that is not active yet can hold no subscription. */
function ready(registration: ServiceWorkerRegistration): Promise<unknown> {
  return registration.active ? Promise.resolve() : navigator.serviceWorker.ready
}
