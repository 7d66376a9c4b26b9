// The service worker's place in the page: it is registered, and what it asks for is done.

import { signal } from '@preact/signals'
import { copyProofForWorker } from './lib/sign-in-proof'
import { navigate } from './lib/router'
import { scriptAddress } from './lib/trusted-script'

export const WORKER = '/sw.js'

/** Not yet in any list of events: what Chromium gives a page that can be installed. */
export interface Installer extends Event {
  prompt(): Promise<unknown>
}

/** Set while the browser offers to install the app; the settings do too. */
export const installer = signal<Installer | null>(null)

/** After everything that the first screen needs. A browser that takes no worker has an app without push. */
export function startWorker(): void {
  const container = navigator.serviceWorker as ServiceWorkerContainer | undefined
  if (!container || import.meta.env.DEV) return
  container.addEventListener('message', (event: MessageEvent<unknown>) => {
    const path = (event.data as { go?: unknown } | null)?.go
    if (typeof path === 'string' && /^\/(?!\/)/.test(path)) navigate(path)
  })
  addEventListener('beforeinstallprompt', (event) => { installer.value = event as Installer })
  addEventListener('appinstalled', () => { installer.value = null })
  const register = () => void registerWorker().then(copyProofForWorker).then(keepLoaded).then(again).catch(() => {})
  if (document.readyState === 'complete') register()
  else addEventListener('load', register, { once: true })
}

export async function registerWorker(): Promise<ServiceWorkerRegistration> {
  return navigator.serviceWorker.register(scriptAddress(WORKER), { updateViaCache: 'none' })
}

/** The first visit came before the worker: what it loaded is kept now, so that the app opens offline after it. */
async function keepLoaded(): Promise<void> {
  const { active } = await navigator.serviceWorker.ready
  const loaded = performance.getEntriesByType('resource').map(({ name }) => new URL(name))
  active?.postMessage({ keep: loaded.filter(({ origin }) => origin === location.origin).map(({ pathname }) => pathname) })
}

/** A server that has lost its devices' subscriptions, or has another key, is told anew. */
async function again(): Promise<void> {
  if (typeof Notification === 'undefined' || Notification.permission !== 'granted') return
  const { renewSubscription } = await import('./push')
  await renewSubscription()
}
