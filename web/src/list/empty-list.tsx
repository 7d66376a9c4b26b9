// What somebody sees who has no session yet.

import { hubVisit, machinesLoaded, machines } from '../lib/hub-state'
import { CommandLine } from '../ui/command-to-copy'

const COMMANDS = [
  ['Ask something from a terminal', 'ropewalk run "what does this project do?"'],
  ['Connect your editor', 'ropewalk editors'],
] as const

/** What connects a machine to this hub; the token stands in the settings when it is made. */
export function connectCommand(token = '…'): string {
  return `ROPEWALK_BRIDGE_TOKEN=${token} ropewalk up --bridge ${location.origin}`
}

export function EmptyList() {
  if (hubVisit.value) return <EmptyHub />
  return (
    <div class="empty-list">
      <h2>No sessions yet</h2>
      <p>Start one here, from a terminal or from your editor:</p>
      {COMMANDS.map(([what, command]) => (
        <div key={command} class="command">
          <p class="soft">{what}</p>
          <CommandLine command={command} />
        </div>
      ))}
    </div>
  )
}

function EmptyHub() {
  if (!machinesLoaded.value) return null
  if (machines.value.length > 0) {
    return (
      <div class="empty-list">
        <h2>No sessions yet</h2>
        <p>Start one here or on a connected machine. It then appears in this list.</p>
      </div>
    )
  }
  return (
    <div class="empty-list">
      <h2>No machine is connected</h2>
      <p>Agents run on your machines. This hub lets you see and steer them from anywhere.</p>
      <ol class="steps">
        <li><p>Create a token for the machine.</p><a class="button primary" href="/settings/tokens">Create token</a></li>
        <li><p>On the machine, start Ropewalk with the token:</p><CommandLine command={connectCommand()} /></li>
      </ol>
    </div>
  )
}
