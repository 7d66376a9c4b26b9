// Links to one session for somebody else: what they may do with it and until when, and a way to take them back.

import { useSignal } from '@preact/signals'
import { sendRequest, clockSkew } from '../lib/connection'
import { ago, clockTime, currentTime, pluralize } from '../lib/format'
import { Action, Choice, Entry } from '../settings/setting-controls'
import { roleLabel } from '../settings/roles'
import type { Role, ShareView } from '../wire'
import { dateInputValue, type Expiry, expiryTime } from './expiry'
import { useHubList } from './use-hub-list'
import { OneTimeSecret } from './one-time-secret'
import '../settings/settings.css'
import './hub.css'

const ROLES: readonly (readonly [Role, string, string])[] = [
  ['viewer', 'Viewer', 'Can view the session.'],
  ['approver', 'Approver', 'Can also answer permission requests and questions.'],
  ['driver', 'Driver', 'Can also send prompts. The agent then acts on your machine, with your permissions.'],
]
const ENDS: readonly (readonly [Expiry, string])[] = [['hour', '1 hour'], ['day', '1 day'], ['week', '7 days'], ['date', 'Until a date']]

export default function ShareLinks({ session }: { session: string }) {
  const made = useSignal<{ url: string; share: ShareView } | null>(null)
  const { all, trouble, load } = useHubList(async () => (await sendRequest({ do: 'shares', session })).shares, session)
  const gone = (id: string) => {
    if (made.value?.share.id === id) made.value = null
    return load()
  }
  return (
    <div class="settings hub-sheet">
      {made.value
        ? <Made url={made.value.url} share={made.value.share} onMore={() => { made.value = null }} />
        : <Make session={session} onMade={(share) => { made.value = share; void load() }} />}
      {trouble && <p class="settings-trouble" role="alert">{trouble}</p>}
      {all !== null && all.length > 0 && <h3>Links to this session</h3>}
      <ul class="settings-list">{all?.map((share) => <ShareEntry key={share.id} share={share} onGone={() => gone(share.id)} />)}</ul>
    </div>
  )
}

function Make({ session, onMade }: { session: string; onMade: (made: { url: string; share: ShareView }) => void }) {
  const role = useSignal<Role>('viewer')
  const end = useSignal<Expiry>('day')
  const date = useSignal('')
  const clockThere = currentTime.value + clockSkew.value
  const until = expiryTime(end.value, date.value, clockThere)
  const make = async () => {
    if (until !== null) onMade(await sendRequest({ do: 'share', session, role: role.value, until }))
  }
  return (
    <>
      <p class="settings-lead">Anyone with the link can see this session, and nothing else of yours.</p>
      <Choice name="share-role" title="What can they do?" note={ROLES.find(([one]) => one === role.value)?.[2]} value={role.value} options={ROLES.map(([value, word]) => [value, word] as const)} onChange={(value) => (role.value = value)} />
      <Choice name="share-end" title="For how long?" value={end.value} options={ENDS} onChange={(value) => (end.value = value)} />
      {end.value === 'date' && (
        <label class="field">Last day
          <input type="date" min={dateInputValue(clockThere)} value={date.value} onInput={(event) => (date.value = event.currentTarget.value)} />
        </label>
      )}
      <div class="invite-buttons"><Action word="Create link" kind="main" disabled={until === null} run={make} /></div>
    </>
  )
}

function Made({ url, share, onMore }: { url: string; share: ShareView; onMore: () => void }) {
  return (
    <div class="invite">
      <p>{roleLabel(share.role)}, until {clockTime(share.until - clockSkew.value)}. Copy the link now. It is shown only once:</p>
      <OneTimeSecret label="Link to the session" text={url} />
      <div class="invite-buttons"><button type="button" onClick={onMore}>Create another</button></div>
    </div>
  )
}

function ShareEntry({ share, onGone }: { share: ShareView; onGone: () => Promise<void> }) {
  const used = share.uses === 0 ? 'not used yet' : `used ${pluralize(share.uses, 'time')}`
  const isOver = share.until <= currentTime.value + clockSkew.value
  return (
    <li>
      <Entry title={`${roleLabel(share.role)} · ${isOver ? 'expired' : 'until'} ${clockTime(share.until - clockSkew.value)}`} note={`${used} · ${ago('created', share.createdAt)}`}>
        <Action word="Revoke" sure="Everyone who uses it loses access immediately." run={() => sendRequest({ do: 'unshare', share: share.id }).then(onGone)} />
      </Entry>
    </li>
  )
}
