// Everything that waits for somebody, in all sessions.

import { openAsks, boardLoaded } from '../lib/board'
import { AskListItem } from '../ask/ask-list-item'
import { Icon } from '../ui/icons'
import { phone } from '../ui/screen-size'

export function InboxPage() {
  const waiting = openAsks.value
  return (
    <main class="inbox" id="main">
      <header class="head">
        {phone.value && <a class="icon-button" href="/" aria-label="All sessions"><Icon name="back" /></a>}
        <div class="head-title"><h1>Inbox</h1><p class="soft">{!boardLoaded.value ? 'Loading…' : waiting.length === 0 ? 'Nothing needs you' : `${waiting.length} waiting for you`}</p></div>
      </header>
      <div class="room-scroll"><div class="column">
        {waiting.length === 0
          ? <p class="empty"><Icon name="check" size={28} />{boardLoaded.value ? 'Nothing needs you right now. Requests from the agents of all sessions appear here.' : 'Loading…'}</p>
          : <ul class="bare inbox-list">{waiting.map((one, place) => <li key={`${one.session} ${one.ask}`}><AskListItem ask={one} place={place} /></li>)}</ul>}
      </div></div>
    </main>
  )
}
