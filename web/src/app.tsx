// The frame around every screen: which room is shown, beside what.

import { signal, useSignalEffect } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { InboxPage } from './list/inbox'
import { NewSessionPage } from './list/new-session'
import { SessionList } from './list/session-list'
import { NotFound, SignedOut } from './list/signed-out'
import { openAsks, cards } from './lib/board'
import type { SignInLink } from './hub/sign-in-link'
import { hubVisit, isGuest } from './lib/hub-state'
import { forgetContent } from './lib/browser-storage'
import { lazy } from './lib/lazy'
import { sendRequest, onConnected, connectionState } from './lib/connection'
import { navigate, route, routeSession, sessionPath } from './lib/router'
import { titleOf } from './lib/format'
import { SessionPage } from './session/session-page'
import { Knocks } from './settings/knock-banner'
import { ErrorBoundary } from './ui/error-boundary'
import { ShortcutHelp, useShortcuts } from './ui/keyboard-shortcuts'
import { phone } from './ui/screen-size'
import { ConnectionBanner, FaultBanner, Toasts } from './ui/banners-and-toasts'

const Changes = lazy(() => import('./changes/changes'))
const Settings = lazy(() => import('./settings/settings'))
const EnterCode = lazy(() => import('./pair/enter-code'))
const SignIn = lazy(() => import('./hub/sign-in'))

/** The link into a hub that this page was opened by. */
export const signInLink = signal<SignInLink | null>(null)

export function App() {
  useShortcuts()
  useTitle()
  useLooking()
  useOneSession()
  const here = route.value
  const line = connectionState.value
  const signedOut = line.is === 'signedOut'
  // Whoever only has to sign in again finds their drafts.
  useEffect(() => { if (line.is === 'signedOut' && !line.again) forgetContent() }, [line])
  if (signInLink.value) return <><SignIn signInLink={signInLink.value} /><Toasts /></>
  if (here.at === 'login' || here.at === 'pair') return <><EnterCode mode={here.at} /><Toasts /></>
  if (signedOut) return <><SignedOut again={line.again} /><Toasts /></>
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.querySelector<HTMLElement>('textarea, a, button')?.focus() }}>Skip to content</a>
      <ConnectionBanner />
      <FaultBanner />
      <Knocks />
      <div class={`frame at-${here.at}${isGuest.value ? ' alone-frame' : ''}`}>
        {!phone.value && !isGuest.value && <SessionList />}
        {phone.value && here.at === 'list' && !isGuest.value ? <main class="list-page" id="main"><h1 class="off-screen">Sessions</h1><SessionList /></main> : <ErrorBoundary again={here} words="This page could not be shown. Reload it, or open another one."><Room /></ErrorBoundary>}
      </div>
      <Toasts />
      <ShortcutHelp />
    </>
  )
}

function Room() {
  const here = route.value
  switch (here.at) {
    case 'list':
    case 'new':
      return <NewSessionPage />
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
      return <NotFound />
  }
}

/** Whoever came by a link to one session is there, or in the settings. */
function useOneSession(): void {
  useSignalEffect(() => {
    const only = isGuest.value ? hubVisit.value?.session : null
    if (only && routeSession.value !== only && route.value.at !== 'settings') navigate(sessionPath(only), { replace: true })
  })
}

/** The tab says which session it is, and how much waits. */
function useTitle(): void {
  useSignalEffect(() => {
    const card = routeSession.value ? cards.value.get(routeSession.value) : undefined
    const waiting = openAsks.value.length
    document.title = `${waiting > 0 ? `(${waiting}) ` : ''}${card ? `${titleOf(card)} – ` : ''}Ropewalk`
  })
}

/** Who looks needs no push: the server is told where somebody looks, and when nobody does. */
function useLooking(): void {
  useSignalEffect(() => {
    const session = routeSession.value
    const tell = () => {
      if (connectionState.peek().is === 'live') sendRequest({ do: 'looking', at: session, visible: document.visibilityState === 'visible' }).catch(() => {})
    }
    const end = onConnected(tell)
    document.addEventListener('visibilitychange', tell)
    return () => {
      end()
      document.removeEventListener('visibilitychange', tell)
    }
  })
}
