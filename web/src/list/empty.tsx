// What somebody sees who has no session yet.

import { CommandLine } from '../ui/button'

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
          <CommandLine command={command} />
        </div>
      ))}
    </div>
  )
}
