// Settings: one page, its sections named by the address (`/settings/devices`).

import { useEffect } from 'preact/hooks'
import { Icon } from '../ui/icons'
import { About, Data } from './about'
import { Appearance } from './appearance'
import { Devices } from './devices'
import { Notifications } from './notifications'
import { Rules } from './rules'
import './settings.css'

const PARTS = [
  ['appearance', 'Appearance'],
  ['notifications', 'Notifications'],
  ['rules', 'Permission rules'],
  ['devices', 'Devices'],
  ['data', 'Data'],
  ['about', 'About'],
] as const

export default function Settings({ part }: { part: string | null }) {
  useEffect(() => {
    if (part === null) return
    const title = document.getElementById(`title-${part}`)
    title?.scrollIntoView({ block: 'start' })
    title?.focus({ preventScroll: true })
  }, [part])
  return (
    <div class="settings">
      <header class="settings-head">
        <a class="settings-back" href="/"><Icon name="back" /><span>Sessions</span></a>
        <h1>Settings</h1>
      </header>
      <div class="settings-body">
        <nav class="settings-nav" aria-label="Settings">
          {PARTS.map(([id, word]) => <a key={id} href={`/settings/${id}`} aria-current={id === part ? 'true' : undefined}>{word}</a>)}
        </nav>
        <main class="settings-main" id="main">
          <Appearance />
          <Notifications />
          <Rules />
          <Devices />
          <Data />
          <About />
        </main>
      </div>
    </div>
  )
}
