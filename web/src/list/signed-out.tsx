// Pages without a session: signed out, and addresses that lead nowhere.

import { useEffect, useState } from 'preact/hooks'
import { fetchHubInfo } from '../hub/hub-info'
import { hubVisit } from '../lib/hub-state'
import { lazy } from '../lib/lazy'
import { CommandLine } from '../ui/command-to-copy'

const SignIn = lazy(() => import('../hub/sign-in'))

export function SignedOut({ again }: { again: boolean }) {
  const [hub, setHub] = useState<boolean | null>(hubVisit.value ? true : null)
  useEffect(() => { if (hub === null) void fetchHubInfo().then((found) => setHub(found !== null)) }, [])
  if (hub === null) return null
  if (hub) return <SignIn signInLink={null} linkEnded={hubVisit.value !== null && hubVisit.value.person === null} again={again} />
  return (
    <main class="alone" id="main">
      <h1>{again ? 'Sign in again' : 'You are signed out'}</h1>
      {again
        ? <p>This browser has lost its sign-in: its stored data was cleared, or it signed in before the last update of Ropewalk.</p>
        : <p>This browser is not paired, or its access was revoked.</p>}
      <p>To get a sign-in link, run this on the computer where Ropewalk runs:</p>
      <CommandLine command="ropewalk up" />
      <p>To pair a phone or another computer, run this and scan the code:</p>
      <CommandLine command="ropewalk pair" />
      <p><a class="button primary" href="/pair">Enter a code</a></p>
    </main>
  )
}

export function NotFound() {
  return (
    <main class="alone" id="main">
      <h1>Page not found</h1>
      <p>There is no page at this address. Part of the link may be missing.</p>
      <p><a class="button primary" href="/">All sessions</a></p>
    </main>
  )
}
