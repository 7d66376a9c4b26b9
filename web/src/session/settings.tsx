// A session's settings (mode, model, approval) as chips that open the browser's own list.

import { useState } from 'preact/hooks'
import type { Setting } from '../wire'
import { ask } from '../lib/line'
import { tried } from '../lib/toast'
import { Icon } from '../ui/icons'

interface ChipsProps {
  settings: readonly Setting[]
  disabled: boolean
  onSet: (setting: string, value: string) => Promise<unknown>
}

export function SettingChips({ settings, disabled, onSet }: ChipsProps) {
  return <>{settings.filter((setting) => setting.choices.length > 1).map((setting) => <Chip key={setting.id} setting={setting} disabled={disabled} onSet={onSet} />)}</>
}

function Chip({ setting, disabled, onSet }: { setting: Setting; disabled: boolean; onSet: ChipsProps['onSet'] }) {
  const [pending, setPending] = useState<string | null>(null)
  const known = setting.choices.some((choice) => choice.value === setting.value)
  const change = async (select: HTMLSelectElement) => {
    const value = select.value
    setPending(value)
    const done = await tried(onSet(setting.id, value))
    setPending(null)
    if (!done) select.value = setting.value
  }
  return (
    <label class={`chip ${pending ? 'pending' : ''}`} title={setting.description || setting.name}>
      <span class="chip-name">{setting.name}</span>
      <select value={pending ?? setting.value} disabled={disabled || pending !== null} aria-label={setting.name} data-setting={setting.id} onChange={(event) => void change(event.currentTarget)}>
        {!known && <option value={setting.value}>{setting.value}</option>}
        {setting.choices.map((choice) => <option key={choice.value} value={choice.value} title={choice.description}>{choice.name}</option>)}
      </select>
      <Icon name="down" size={14} />
    </label>
  )
}

export function setIn(session: string): ChipsProps['onSet'] {
  return (setting, value) => ask({ do: 'set', session, setting, value })
}
