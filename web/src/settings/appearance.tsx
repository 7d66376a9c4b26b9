// How this browser shows things. Kept here; the server does not know.

import { sendKey, splitDiffs, theme, wrapLines, type SendKey, type Theme } from '../lib/preferences'
import { installer } from '../register-service-worker'
import { Action, Choice, Entry, Section } from './setting-controls'

const THEMES: [Theme, string][] = [['auto', 'System'], ['light', 'Light'], ['dark', 'Dark']]
const KEYS: [SendKey, string][] = [['auto', 'Automatic'], ['enter', 'Enter'], ['modifierEnter', 'Ctrl + Enter']]
const WRAPS: ['on' | 'off', string][] = [['on', 'Wrap'], ['off', 'Scroll']]
const VIEWS: ['split' | 'one', string][] = [['split', 'Side by side'], ['one', 'One column']]

export function Appearance() {
  return (
    <Section id="appearance" title="Appearance">
      <Choice name="theme" title="Theme" value={theme.value} options={THEMES} onChange={(value) => (theme.value = value)} />
      <Choice name="wrap" title="Long lines of code" value={wrapLines.value ? 'on' : 'off'} options={WRAPS} onChange={(value) => (wrapLines.value = value === 'on')} />
      <Choice name="split" title="Changes" note="Side by side needs a wide window." value={splitDiffs.value ? 'split' : 'one'} options={VIEWS} onChange={(value) => (splitDiffs.value = value === 'split')} />
      <Choice name="send" title="Send prompts with" note="Automatic: Enter with a keyboard, only the button on a phone." value={sendKey.value} options={KEYS} onChange={(value) => (sendKey.value = value)} />
      {installer.value && (
        <Entry title="Install Ropewalk" note="Ropewalk then has its own window and is listed with your apps.">
          <Action word="Install" run={async () => { await installer.value?.prompt(); installer.value = null }} />
        </Entry>
      )}
    </Section>
  )
}
