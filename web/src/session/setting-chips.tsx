// A session's settings: those that are changed often as chips that open the browser's own list, all of
// them, with what they mean, in a sheet.

import { useState } from 'preact/hooks'
import type { Setting } from '../wire'
import { sendRequest } from '../lib/connection'
import { toastOnError } from '../lib/toast'
import { IconButton } from '../ui/icon-button'
import { Icon } from '../ui/icons'
import { Sheet } from '../ui/sheet'

interface ChipsProps {
  settings: readonly Setting[]
  disabled: boolean
  onSet: (setting: string, value: string) => Promise<unknown>
}

/** Settings whose value says what it is about. */
const CHIPS = ['mode', 'model', 'approval']

export function SettingChips({ settings, disabled, onSet }: ChipsProps) {
  const [open, setOpen] = useState(false)
  const choosable = settings.filter((setting) => setting.choices.length > 1)
  if (choosable.length === 0) return null
  return (
    <>
      {choosable.filter((setting) => CHIPS.includes(setting.id)).map((setting) => <Chip key={setting.id} setting={setting} disabled={disabled} onSet={onSet} />)}
      <IconButton label="All session settings" icon="mode" size={18} onPress={() => setOpen(true)} />
      {open && (
        <Sheet label="Session settings" onClose={() => setOpen(false)}>
          <div class="all-settings">{choosable.map((setting) => <Field key={setting.id} setting={setting} disabled={disabled} onSet={onSet} />)}</div>
        </Sheet>
      )}
    </>
  )
}

interface ChoiceProps {
  setting: Setting
  disabled: boolean
  onSet: ChipsProps['onSet']
}

function Chip(props: ChoiceProps) {
  return (
    <label class={`chip of-${props.setting.id}`} title={`${props.setting.name}: ${props.setting.description}`}>
      <span class="chip-name" aria-hidden="true">{props.setting.name}</span><Select {...props} /><Icon name="down" size={14} />
    </label>
  )
}

function Field(props: ChoiceProps) {
  const { setting } = props
  const about = setting.choices.find((choice) => choice.value === setting.value)?.description
  return (
    <div class="field">
      <span aria-hidden="true">{setting.name}</span><Select {...props} />
      <span class="soft">{setting.description}{about && `. ${about}.`}</span>
    </div>
  )
}

function Select({ setting, disabled, onSet }: ChoiceProps) {
  const [pending, setPending] = useState<string | null>(null)
  const known = setting.choices.some((choice) => choice.value === setting.value)
  const change = async (select: HTMLSelectElement) => {
    const value = select.value
    setPending(value)
    const done = await toastOnError(onSet(setting.id, value))
    setPending(null)
    if (!done) select.value = setting.value
  }
  return (
    <select class={pending ? 'pending' : ''} value={pending ?? setting.value} disabled={disabled || pending !== null} aria-label={setting.name} data-setting={setting.id} onChange={(event) => void change(event.currentTarget)}>
      {!known && <option value={setting.value}>{setting.value}</option>}
      {setting.choices.map((choice) => <option key={choice.value} value={choice.value} title={choice.description}>{choice.name}</option>)}
    </select>
  )
}

export function setIn(session: string): ChipsProps['onSet'] {
  return (setting, value) => sendRequest({ do: 'set', session, setting, value })
}
