// The frame around every screen: which room is shown, beside what.

import { signal, useSignalEffect } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { InboxPage } from './list/inbox'
import { NewPage } from './list/new'
import { Rail } from './list/rail'
import { Nowhere, SignedOut } from './list/welcome'
import { asks, cards } from './lib/board'
import type { Arrival } from './hub/arrival'
import { at, isGuest } from './lib/hub'
import { forgetContent } from './lib/keep'
import { lazy } from './lib/lazy'
import { ask, onLive, state } from './lib/line'
import { go, place, sessionAt, sessionPath } from './lib/router'
import { titleOf } from './lib/words'
import { SessionPage } from './session/page'
import { Knocks } from './settings/knocks'
import { Boundary } from './ui/boundary'
import { Help, useKeys } from './ui/keys'
import { phone } from './ui/screen'
import { ConnectionBanner, FaultBanner, Toasts } from './ui/status'

const Changes = lazy(() => import('./changes/changes'))
const Settings = lazy(() => import('./settings/settings'))
const Enter = lazy(() => import('./pair/enter'))
const SignIn = lazy(() => import('./hub/signin'))

/** The link into a hub that this page was opened by. */
export const arrival = signal<Arrival | null>(null)

export function App() {
  useKeys()
  useTitle()
  useLooking()
  useOneSession()
  const here = place.value
  const line = state.value
  const signedOut = line.is === 'signedOut'
  // Whoever only has to sign in again finds their drafts.
  useEffect(() => { if (line.is === 'signedOut' && !line.again) forgetContent() }, [line])
  if (arrival.value) return <><SignIn arrival={arrival.value} /><Toasts /></>
  if (here.at === 'login' || here.at === 'pair') return <><Enter mode={here.at} /><Toasts /></>
  if (signedOut) return <><SignedOut again={line.again} /><Toasts /></>
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.querySelector<HTMLElement>('textarea, a, button')?.focus() }}>Skip to content</a>
      <ConnectionBanner />
      <FaultBanner />
      <Knocks />
      <div class={`frame at-${here.at}${isGuest.value ? ' alone-frame' : ''}`}>
        {!phone.value && !isGuest.value && <Rail />}
        {phone.value && here.at === 'list' && !isGuest.value ? <main class="list-page" id="main"><h1 class="off-screen">Sessions</h1><Rail /></main> : <Boundary again={here} words="This page could not be shown. Reload it, or open another one."><Room /></Boundary>}
      </div>
      <Toasts />
      <Help />
    </>
  )
}

function Room() {
  const here = place.value
  switch (here.at) {
    case 'list':
    case 'new':
      return <NewPage />
    case 'inbox':
      return <InboxPage />
    case 'session':
    case 'ask':
      return <SessionPage session={here.session} />
    case 'changes':
      return <Changes key={here.session} session={here.session} path={here.path} />
    case 'settings':
      return <Settings part={here.part} />
    default:
      return <Nowhere />
  }
}

/** Whoever came by a link to one session is there, or in the settings. */
function useOneSession(): void {
  useSignalEffect(() => {
    const only = isGuest.value ? at.value?.session : null
    if (only && sessionAt.value !== only && place.value.at !== 'settings') go(sessionPath(only), { replace: true })
  })
}

/** The tab says which session it is, and how much waits. */
function useTitle(): void {
  useSignalEffect(() => {
    const card = sessionAt.value ? cards.value.get(sessionAt.value) : undefined
    const waiting = asks.value.length
    document.title = `${waiting > 0 ? `(${waiting}) ` : ''}${card ? `${titleOf(card)} – ` : ''}Ropewalk`
  })
}

/** Who looks needs no push: the server is told where somebody looks, and when nobody does. */
function useLooking(): void {
  useSignalEffect(() => {
    const session = sessionAt.value
    const tell = () => {
      if (state.peek().is === 'live') ask({ do: 'looking', at: session, visible: document.visibilityState === 'visible' }).catch(() => {})
    }
    const end = onLive(tell)
    document.addEventListener('visibilitychange', tell)
    return () => {
      end()
      document.removeEventListener('visibilitychange', tell)
    }
  })
}
