import { render } from 'preact'
import './style.css'
import { App } from './app'
import { startBoard } from './lib/board'
import { startTheme } from './lib/choices'
import { startLine } from './lib/line'
import { place, startRouter } from './lib/router'
import { startSessions } from './lib/session'
import { startWorker } from './worker'

const root = document.getElementById('app')
if (root) {
  startTheme()
  startRouter()
  startBoard()
  startSessions()
  startWorker()
  // Who comes with a code has no cookie yet: the page that takes it starts the connection.
  const at = place.peek().at
  if (at !== 'login' && at !== 'pair') startLine()
  render(<App />, root)
}
