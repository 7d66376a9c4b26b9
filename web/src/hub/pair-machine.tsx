// Pairing with a sealed machine: the link that it shows holds a secret which the hub never sees, and after it both
// screens show the same words.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { machines } from '../lib/hub-state'
import { startConnection, connectionState } from '../lib/connection'
import { pairWithMachine } from '../lib/sealed-connection'
import { errorText } from '../lib/toast'
import { visible } from '../lib/format'
import { guessName } from '../pair/pairing'
import { roleLabel } from '../settings/roles'
import type { Role } from '../wire'
import { pairingFragment } from './pairing-link'
import SignIn from './sign-in'
import '../pair/sign-in.css'
import './hub.css'

type Step = { is: 'asking'; failed: string | null } | { is: 'working' } | { is: 'paired'; machine: string; role: string; words: string }

export default function PairMachine({ fragment }: { fragment: string | null }) {
  const link = useSignal(fragment)
  const pasted = useSignal('')
  const name = useSignal(guessName(navigator.userAgent, navigator.maxTouchPoints))
  const step = useSignal<Step>({ is: 'asking', failed: null })
  useEffect(startConnection, [])
  // Who is not signed in does that first, and comes back here with the same link.
  if (connectionState.value.is === 'signedOut') return <SignIn signInLink={null} onIn={() => { location.replace(`/pair${link.value ? `#${link.value}` : ''}`); location.reload() }} />
  const begin = async (event: Event) => {
    event.preventDefault()
    const given = link.value ?? pairingFragment(pasted.value)
    if (!given) {
      step.value = { is: 'asking', failed: 'This is not a pairing link, or part of it is missing. Copy it again.' }
      return
    }
    step.value = { is: 'working' }
    try {
      step.value = { is: 'paired', ...(await pairWithMachine(given, name.value.trim() || 'Browser')) }
      link.value = null
    } catch (error) {
      step.value = { is: 'asking', failed: errorText(error) }
    }
  }
  const now = step.value
  return (
    <main class="enter" id="main">
      <div class="enter-card">
        <img src="/icon.svg" width="64" height="64" alt="" />
        <h1>{now.is === 'paired' ? 'This device is paired' : 'Pair this device'}</h1>
        <p class="enter-host">{location.host}</p>
        {now.is === 'working' && <p class="enter-wait" role="status">Waiting for the machine…</p>}
        {now.is === 'paired' && (
          <div role="status">
            <p>It can read <b><bdi>{visible(machines.value.find(({ id }) => id === now.machine)?.name ?? now.machine)}</bdi></b> as {roleLabel(now.role as Role).toLowerCase()}. The machine must show the same words:</p>
            <p class="enter-words" data-words>{now.words}</p>
            <p class="enter-note">If they differ, revoke this device on the machine immediately: <code>ropewalk devices revoke</code>.</p>
            <button type="button" class="enter-main" onClick={() => location.replace('/')}>Go to sessions</button>
          </div>
        )}
        {now.is === 'asking' && (
          <form onSubmit={(event) => void begin(event)}>
            <p>A sealed machine is end-to-end encrypted: only devices that are paired with it can read it, the hub cannot.</p>
            {now.failed && <p class="enter-failed" role="alert">{now.failed}</p>}
            {link.value === null && (
              <label class="enter-field">
                <span>Pairing link from the machine</span>
                <input value={pasted.value} onInput={(event) => (pasted.value = event.currentTarget.value)} autocomplete="off" autocapitalize="off" spellcheck={false} enterkeyhint="go" required />
              </label>
            )}
            <label class="enter-field">
              <span>Device name</span>
              <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} maxLength={60} autocomplete="off" enterkeyhint="go" />
            </label>
            <button type="submit" class="enter-main">Pair</button>
            <p class="enter-note">Run <code>ropewalk pair</code> on the machine to get a QR code and a link. They work once, for five minutes. <a href="/">Back to sessions</a></p>
          </form>
        )}
      </div>
    </main>
  )
}
