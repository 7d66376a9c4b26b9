// Where the app starts: everything that runs without a face, then the page.

import { render } from 'preact'
import './style.css'
import './list/list.css'
import './session/session.css'
import './ask/ask.css'
import './ui/text.css'
import { App } from './app'
import { startBoard } from './lib/board'
import { startTheme } from './lib/choices'
import { startFlush } from './lib/flush'
import { startKeeping } from './lib/keep'
import { startLine } from './lib/line'
import { startOutbox } from './lib/outbox'
import { place, startRouter } from './lib/router'
import { startSessions } from './lib/session'
import { startClock } from './lib/words'
import { startScreen } from './ui/screen'
import { startGuests } from './settings/guests'
import { startWorker } from './worker'

const root = document.getElementById('app')
if (root) {
  startTheme()
  startScreen()
  startRouter()
  startClock()
  startKeeping()
  startFlush()
  startBoard()
  startSessions()
  startOutbox()
  startGuests()
  startWorker()
  // Who comes with a code has no cookie yet: the page that takes it starts the connection.
  const at = place.peek().at
  if (at !== 'login' && at !== 'pair') startLine()
  render(<App />, root)
}
