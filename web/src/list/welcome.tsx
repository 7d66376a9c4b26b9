// Pages without a session: signed out, and addresses that lead nowhere.

import { useEffect, useState } from 'preact/hooks'
import { about } from '../hub/about'
import { at } from '../lib/hub'
import { lazy } from '../lib/lazy'
import { CommandLine } from '../ui/button'

const SignIn = lazy(() => import('../hub/signin'))

export function SignedOut({ again }: { again: boolean }) {
  const [hub, setHub] = useState<boolean | null>(at.value ? true : null)
  useEffect(() => { if (hub === null) void about().then((found) => setHub(found !== null)) }, [])
  if (hub === null) return null
  if (hub) return <SignIn arrival={null} linkEnded={at.value !== null && at.value.person === null} again={again} />
  return (
    <main class="alone" id="main">
      <h1>{again ? 'Sign in again' : 'You are signed out'}</h1>
      {again
        ? <p>This browser was signed in, and has lost the proof of it: its stored data was cleared, or it signed in before this version of Ropewalk asked for one.</p>
        : <p>This browser is not, or no longer, one of the devices that may come in.</p>}
      <p>On the computer where Ropewalk runs, this prints a link that signs you in:</p>
      <CommandLine command="ropewalk up" />
      <p>For a phone or another computer, this shows a code to scan:</p>
      <CommandLine command="ropewalk pair" />
      <p><a class="button primary" href="/pair">Enter a code</a></p>
    </main>
  )
}

export function Nowhere() {
  return (
    <main class="alone" id="main">
      <h1>Nothing is here</h1>
      <p>This address leads nowhere. It may have been cut off when it was copied.</p>
      <p><a class="button primary" href="/">All sessions</a></p>
    </main>
  )
}
