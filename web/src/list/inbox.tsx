// Everything that waits for somebody, in all sessions.

import { asks, listed } from '../lib/board'
import { AskLine } from '../ask/line'
import { Icon } from '../ui/icons'
import { phone } from '../ui/screen'

export function InboxPage() {
  const waiting = asks.value
  return (
    <main class="inbox" id="main">
      <header class="head">
        {phone.value && <a class="icon-button" href="/" aria-label="All sessions"><Icon name="back" /></a>}
        <div class="head-title"><h1>Inbox</h1><p class="soft">{!listed.value ? 'Loading…' : waiting.length === 0 ? 'Nothing needs you' : `${waiting.length} waiting for you`}</p></div>
      </header>
      <div class="room-scroll"><div class="column">
        {waiting.length === 0
          ? <p class="empty"><Icon name="check" size={28} />{listed.value ? 'Nothing needs you right now. Requests from the agents of all sessions appear here.' : 'Loading…'}</p>
          : <ul class="bare inbox-list">{waiting.map((one, place) => <li key={`${one.session} ${one.ask}`}><AskLine ask={one} place={place} /></li>)}</ul>}
      </div></div>
    </main>
  )
}
