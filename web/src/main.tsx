// Where the app starts: everything that runs without a face, then the page.

import { render } from 'preact'
import './style.css'
import './list/list.css'
import './session/session.css'
import './ask/ask.css'
import './ui/text.css'
import { App, arrival } from './app'
import { takeArrival } from './hub/arrival'
import { startBoard } from './lib/board'
import { startTheme } from './lib/choices'
import { startFaults } from './lib/faults'
import { startFlush } from './lib/flush'
import { startHub } from './lib/hub'
import { startKeeping } from './lib/keep'
import { ask, startLine } from './lib/line'
import { startOutbox } from './lib/outbox'
import { place, startRouter } from './lib/router'
import { startSealed } from './lib/sealed'
import { startSessions } from './lib/session'
import { startClock } from './lib/words'
import { startScreen } from './ui/screen'
import { startGuests } from './settings/guests'
import { startWorker } from './worker'

const root = document.getElementById('app')
if (root) {
  startTheme()
  startScreen()
  arrival.value = takeArrival()
  // Also when a link is opened over this page, which is not loaded anew for it.
  addEventListener('hashchange', () => { arrival.value = takeArrival() ?? arrival.peek() })
  startRouter()
  startClock()
  startKeeping()
  startFlush()
  startHub()
  startSealed(async () => (await import('./lib/seal-here')).SealsHere.load(ask))
  startBoard()
  startFaults()
  startSessions()
  startOutbox()
  startGuests()
  startWorker()
  // Who comes with a code has no cookie yet: the page that takes it starts the connection.
  const at = place.peek().at
  if (at !== 'login' && at !== 'pair' && arrival.peek() === null) startLine()
  render(<App />, root)
}
