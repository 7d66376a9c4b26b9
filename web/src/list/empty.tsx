// What somebody sees who has no session yet.

import { copy } from '../lib/toast'
import { Icon } from '../ui/icons'

const COMMANDS = [
  ['Ask something from a terminal', 'ropewalk run "what does this project do?"'],
  ['See how your editor joins', 'ropewalk editors'],
] as const

export function EmptyList() {
  return (
    <div class="empty-list">
      <h2>No sessions yet</h2>
      <p>Start one here, or from where you work:</p>
      {COMMANDS.map(([what, command]) => (
        <div key={command} class="command">
          <p class="soft">{what}</p>
          <div class="command-line">
            <code>{command}</code>
            <button type="button" class="icon-button" aria-label={`Copy the command ${command}`} onClick={() => void copy(command)}><Icon name="copy" size={18} /></button>
          </div>
        </div>
      ))}
    </div>
  )
}
