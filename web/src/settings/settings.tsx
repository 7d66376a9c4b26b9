// Settings: one page, its sections named by the address (`/settings/devices`).

import { useEffect } from 'preact/hooks'
import { hubVisit, isGuest } from '../lib/hub-state'
import { lazy } from '../lib/lazy'
import { Icon } from '../ui/icons'
import { About, Data } from './about'
import { Appearance } from './appearance'
import { Devices } from './devices'
import { Notifications } from './notifications'
import { scrollToSection } from './setting-controls'
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

/** A hub has no agents of its own, and so no rules; what it has are people and machines. */
const HUB_PARTS = [
  ['appearance', 'Appearance'],
  ['notifications', 'Notifications'],
  ['machines', 'Machines'],
  ['tokens', 'Tokens'],
  ['passkeys', 'Passkeys'],
  ['devices', 'Browsers'],
  ['people', 'People'],
  ['about', 'About'],
] as const

const GUEST_PARTS = [['appearance', 'Appearance'], ['devices', 'This link'], ['about', 'About']] as const

const HubSettings = lazy(() => import('../hub/hub-settings'))

/** What there is, for who is here. */
function parts(): readonly (readonly [id: string, word: string])[] {
  const here = hubVisit.value
  if (!here) return PARTS
  if (isGuest.value) return GUEST_PARTS
  return here.person?.admin ? HUB_PARTS : HUB_PARTS.filter(([id]) => id !== 'people')
}

export default function Settings({ part }: { part: string | null }) {
  useEffect(() => {
    if (part !== null) scrollToSection(part)
  }, [part])
  return (
    <div class="settings">
      <header class="settings-head">
        <a class={isGuest.value ? 'settings-back always' : 'settings-back'} href="/"><Icon name="back" /><span>{isGuest.value ? 'Session' : 'Sessions'}</span></a>
        <h1>Settings</h1>
      </header>
      <div class="settings-body">
        <nav class="settings-nav" aria-label="Settings">
          {parts().map(([id, word]) => <a key={id} href={`/settings/${id}`} aria-current={id === part ? 'true' : undefined}>{word}</a>)}
        </nav>
        <main class="settings-main" id="main">
          <Appearance />
          {!isGuest.value && <Notifications />}
          {hubVisit.value ? <HubSettings part={part} /> : <><Rules /><Devices /><Data /></>}
          <About />
        </main>
      </div>
    </div>
  )
}
