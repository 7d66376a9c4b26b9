// Buttons that are a drawing, and commands to be copied.

import { copyText } from '../lib/toast'
import { Icon, type IconName } from './icons'

interface IconButtonProps {
  /** What it does, for those who do not see the drawing; shown to others when they point at it. */
  label: string
  icon: IconName
  size?: number
  tiny?: boolean
  onPress: () => void
}

export function IconButton({ label, icon, size = 20, tiny = false, onPress }: IconButtonProps) {
  return (
    <button type="button" class={tiny ? 'icon-button tiny' : 'icon-button'} aria-label={label} title={label} onClick={onPress}>
      <Icon name={icon} size={size} />
    </button>
  )
}

export function CommandLine({ command }: { command: string }) {
  return (
    <div class="command-line">
      <code>{command}</code>
      <IconButton label={`Copy the command ${command}`} icon="copy" size={18} onPress={() => void copyText(command)} />
    </div>
  )
}
