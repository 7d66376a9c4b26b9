// Somebody knocks: said on every screen, because whoever waits at the door waits for this.

import { route } from '../lib/router'
import { visible } from '../lib/format'
import { knocks } from './paired-devices'
import './knock-banner.css'

export function Knocks() {
  const waiting = knocks.value
  const here = route.value
  // The settings show the knocks themselves.
  const answered = here.at === 'settings'
  return (
    <div class="knocks" role="status">
      {waiting.length > 0 && !answered && (
        <p>
          <span><bdi>{visible(waiting[0]!.name)}</bdi> wants to pair{waiting.length > 1 ? `, and ${waiting.length - 1} more` : ''}.</span>
          <a href="/settings/devices">Review</a>
        </p>
      )}
    </div>
  )
}
