// Everybody at the hub, for its admins: who there is, a link for one more, and a way out.

import { useSignal } from '@preact/signals'
import { sendRequest, clockSkew } from '../lib/connection'
import { ago, clockTime, pluralize, visible } from '../lib/format'
import { Action, Entry, Section } from '../settings/setting-controls'
import type { PersonView } from '../wire'
import { useHubList } from './use-hub-list'
import { OneTimeSecret } from './one-time-secret'

export function People({ me }: { me: string }) {
  const made = useSignal<{ name: string; url: string; expiresAt: number } | null>(null)
  const { all, trouble, load } = useHubList(async () => (await sendRequest({ do: 'people' })).people, 'people')
  return (
    <Section id="people" title="People">
      <p class="settings-lead">Everyone sees their own machines, and sessions that were shared with them. Admins invite and remove people, but see no more than others.</p>
      {trouble && <p class="settings-trouble" role="alert">{trouble}</p>}
      {made.value
        ? (
          <div class="invite" role="status">
            <p>Send this to <b><bdi>{visible(made.value.name)}</bdi></b>. It works once, until {clockTime(made.value.expiresAt - clockSkew.value)}:</p>
            <OneTimeSecret label="Invitation link" text={made.value.url} />
            <div class="invite-buttons"><button type="button" onClick={() => { made.value = null }}>Done</button></div>
          </div>
        )
        : <Invite onMade={(invited) => { made.value = invited; void load() }} />}
      <ul class="settings-list">{all?.map((person) => <PersonEntry key={person.id} person={person} isMe={person.id === me} onGone={load} />)}</ul>
    </Section>
  )
}

function Invite({ onMade }: { onMade: (made: { name: string; url: string; expiresAt: number }) => void }) {
  const name = useSignal('')
  const admin = useSignal(false)
  const invite = async () => {
    const { url, expiresAt } = await sendRequest({ do: 'invitePerson', name: name.value.trim(), admin: admin.value })
    onMade({ name: name.value.trim(), url, expiresAt })
  }
  return (
    <div class="hub-make">
      <label class="field">Who do you want to invite?
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} maxLength={60} autocomplete="off" />
      </label>
      <Action word="Create link" kind="main" disabled={name.value.trim() === ''} run={invite} />
      <label class="check"><input type="checkbox" checked={admin.value} onChange={(event) => (admin.value = event.currentTarget.checked)} />As an admin, who can invite and remove people</label>
    </div>
  )
}

function PersonEntry({ person, isMe, onGone }: { person: PersonView; isMe: boolean; onGone: () => Promise<void> }) {
  const facts = [person.admin && 'Admin', person.seenAt === null ? 'has not joined yet' : ago('last seen', person.seenAt), person.passkeys === 0 ? 'no passkey' : pluralize(person.passkeys, 'passkey')]
  return (
    <li>
      <Entry title={<><bdi>{visible(person.name)}</bdi>{isMe && <span class="settings-badge">you</span>}</>} note={facts.filter(Boolean).join(' · ')}>
        {!isMe && <Action word="Remove" sure="Their machines, links and browsers are disconnected, and their mirrored sessions are deleted." run={() => sendRequest({ do: 'removePerson', person: person.id }).then(onGone)} />}
      </Entry>
    </li>
  )
}
