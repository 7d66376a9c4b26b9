// A button that is a drawing.

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
