// Pages without a session: signed out, and addresses that lead nowhere.

import { CommandLine } from '../ui/button'

export function SignedOut() {
  return (
    <main class="alone" id="main">
      <h1>You are signed out</h1>
      <p>This browser is not, or no longer, one of the devices that may come in.</p>
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
