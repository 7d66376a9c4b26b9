// Where the app starts: everything that runs without a face, then the page.

import { render } from 'preact'
import './style.css'
import './list/list.css'
import './session/session.css'
import './ask/ask.css'
import './ui/rendered-text.css'
import { App, signInLink } from './app'
import { takeSignInLink } from './hub/sign-in-link'
import { startBoard } from './lib/board'
import { startTheme } from './lib/preferences'
import { startFaults } from './lib/machine-faults'
import { startFlush } from './lib/flush'
import { startHub } from './lib/hub-state'
import { startStorage } from './lib/browser-storage'
import { sendRequest, startConnection } from './lib/connection'
import { startOutbox } from './lib/outbox'
import { route, startRouter } from './lib/router'
import { startSealed } from './lib/sealed-connection'
import { startSessions } from './lib/watched-session'
import { startClock } from './lib/format'
import { startScreen } from './ui/screen-size'
import { startPairedDevices } from './settings/paired-devices'
import { startWorker } from './register-service-worker'

const root = document.getElementById('app')
if (root) {
  startTheme()
  startScreen()
  signInLink.value = takeSignInLink()
  // Also when a link is opened over this page, which is not loaded anew for it.
  addEventListener('hashchange', () => { signInLink.value = takeSignInLink() ?? signInLink.peek() })
  startRouter()
  startClock()
  startStorage()
  startFlush()
  startHub()
  startSealed(async () => (await import('./lib/browser-sealer')).BrowserSealer.load(sendRequest))
  startBoard()
  startFaults()
  startSessions()
  startOutbox()
  startPairedDevices()
  startWorker()
  // Who comes with a code has no cookie yet: the page that takes it starts the connection.
  const at = route.peek().at
  if (at !== 'login' && at !== 'pair' && signInLink.peek() === null) startConnection()
  render(<App />, root)
}
