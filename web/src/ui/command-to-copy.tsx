// A command to be copied.

import { copyText } from '../lib/toast'
import { IconButton } from './icon-button'

export function CommandLine({ command }: { command: string }) {
  return (
    <div class="command-line">
      <code>{command}</code>
      <IconButton label={`Copy the command ${command}`} icon="copy" size={18} onPress={() => void copyText(command)} />
    </div>
  )
}
