// Pages without a session: signed out, and addresses that lead nowhere.

import { copy } from '../lib/toast'
import { Icon } from '../ui/icons'

export function SignedOut() {
  return (
    <main class="alone" id="main">
      <h1>You are signed out</h1>
      <p>This browser is not, or no longer, one of the devices that may come in.</p>
      <p>On the computer where Ropewalk runs, this prints a link that signs you in:</p>
      <div class="command-line"><code>ropewalk up</code><button type="button" class="icon-button" aria-label="Copy the command" onClick={() => void copy('ropewalk up')}><Icon name="copy" size={18} /></button></div>
      <p>For a phone or another computer, this shows a code to scan:</p>
      <div class="command-line"><code>ropewalk pair</code><button type="button" class="icon-button" aria-label="Copy the command" onClick={() => void copy('ropewalk pair')}><Icon name="copy" size={18} /></button></div>
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
