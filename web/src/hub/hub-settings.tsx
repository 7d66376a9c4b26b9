// Settings at a hub: my machines and what they come in with, how I come in myself, and everybody else.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { MachineDot, MachineName, machineStatus } from '../list/machines'
import { connectCommand } from '../list/empty-list'
import { hubVisit, machines } from '../lib/hub-state'
import { sendRequest, hello, clockSkew } from '../lib/connection'
import { toast } from '../lib/toast'
import { ago, clockTime, pluralize, visible } from '../lib/format'
import { guessName } from '../pair/pairing'
import { DeviceList, SignOut } from '../settings/devices'
import { Action, Entry, scrollToSectionWhileLoading, Section } from '../settings/setting-controls'
import { roleLabel } from '../settings/roles'
import { CommandLine } from '../ui/command-to-copy'
import { Icon } from '../ui/icons'
import type { MachineView, PasskeyView, TokenView } from '../wire'
import { type Expiry, expiryTime } from './expiry'
import { useHubList } from './use-hub-list'
import { addPasskey, hasPasskeys } from './passkey'
import { People } from './people'
import { OneTimeSecret } from './one-time-secret'
import './hub.css'

export default function HubSettings({ part }: { part: string | null }) {
  const here = hubVisit.value
  // These sections come after the page that names them: whoever was sent to one is taken there now.
  useEffect(() => (part === null ? undefined : scrollToSectionWhileLoading(part)), [])
  if (!here?.person) return <Guest />
  return (
    <>
      <Machines />
      <Tokens />
      <Passkeys />
      <Section id="devices" title="Signed-in browsers">
        <p class="settings-lead">Browsers that are signed in as you. Each stays signed in for 30 days after its last visit.</p>
        <DeviceList />
      </Section>
      {here.person.admin && <People me={here.person.id} />}
    </>
  )
}

/** Who came by a link has nothing here but the way out. */
function Guest() {
  return (
    <Section id="devices" title="This link">
      <Entry title={`Your role: ${roleLabel(hello.value?.role ?? 'viewer').toLowerCase()}`} note={hubVisit.value?.until == null ? 'You can see one session.' : `You can see one session, until ${clockTime(hubVisit.value.until - clockSkew.value)}.`}>
        <SignOut word="Leave" sure="Leave this session?" />
      </Entry>
    </Section>
  )
}

function Machines() {
  const mine = machines.value.filter(({ own }) => own)
  return (
    <Section id="machines" title="Machines">
      <p class="settings-lead">Where your agents run. Their sessions are mirrored to this hub.</p>
      {mine.length === 0 && <p class="settings-none">No machine has connected yet. Create a token below, and start Ropewalk with it.</p>}
      <ul class="settings-list">{mine.map((machine) => <MachineEntry key={machine.id} machine={machine} />)}</ul>
    </Section>
  )
}

function MachineEntry({ machine }: { machine: MachineView }) {
  const facts = [machineStatus(machine), pluralize(machine.sessions.length, 'session'), machine.version && `Ropewalk ${visible(machine.version)}`, machine.sealed && 'sealed: the hub cannot read it']
  return (
    <li>
      <Entry title={<span class="machine-line"><MachineDot machine={machine} /><MachineName machine={machine} />{machine.sealed && <Icon name="lock" size={15} />}</span>} note={facts.filter(Boolean).join(' · ')}>
        {machine.sealed && <a class="button small" href="/pair">Pair this device</a>}
        <Action word="Remove" sure="Its sessions are deleted from this hub. The machine keeps them." run={() => sendRequest({ do: 'forgetMachine', machine: machine.id })} />
      </Entry>
    </li>
  )
}

const TOKEN_ENDS: readonly (readonly [Expiry, string])[] = [['never', 'Never'], ['day', 'In 1 day'], ['week', 'In 7 days'], ['date', 'On a date']]

function Tokens() {
  const made = useSignal<{ secret: string; token: TokenView } | null>(null)
  const { all, trouble, load } = useHubList(async () => (await sendRequest({ do: 'tokens' })).tokens, 'tokens')
  return (
    <Section id="tokens" title="Tokens for machines">
      <p class="settings-lead">A machine connects with its token. Create one for each machine, so that you can revoke each on its own.</p>
      {trouble && <p class="settings-trouble" role="alert">{trouble}</p>}
      {made.value
        ? <MadeToken secret={made.value.secret} token={made.value.token} onDone={() => { made.value = null }} />
        : <MakeToken onMade={(token) => { made.value = token; void load() }} />}
      {all?.length === 0 && <p class="settings-none">No tokens yet.</p>}
      <ul class="settings-list">{all?.map((token) => <TokenEntry key={token.id} token={token} onGone={load} />)}</ul>
    </Section>
  )
}

function MakeToken({ onMade }: { onMade: (made: { secret: string; token: TokenView }) => void }) {
  const name = useSignal('')
  const end = useSignal<Expiry>('never')
  const date = useSignal('')
  const make = async () => {
    const until = expiryTime(end.value, date.value, Date.now() + clockSkew.value)
    if (until === null && end.value !== 'never') throw new Error('Choose today or a later date.')
    onMade(await sendRequest({ do: 'makeToken', name: name.value.trim(), until }))
  }
  return (
    <div class="hub-make">
      <label class="field">Which machine is it for?
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} maxLength={60} placeholder="laptop" autocomplete="off" />
      </label>
      <label class="field">Expires
        <select value={end.value} onChange={(event) => (end.value = event.currentTarget.value as Expiry)}>{TOKEN_ENDS.map(([value, word]) => <option key={value} value={value}>{word}</option>)}</select>
      </label>
      {end.value === 'date' && <label class="field">Last day<input type="date" value={date.value} onInput={(event) => (date.value = event.currentTarget.value)} /></label>}
      <Action word="Create token" kind="main" disabled={name.value.trim() === ''} run={make} />
    </div>
  )
}

function MadeToken({ secret, token, onDone }: { secret: string; token: TokenView; onDone: () => void }) {
  return (
    <div class="invite" role="status">
      <p>Copy the token for <b><bdi>{visible(token.name)}</bdi></b> now. It is shown only once:</p>
      <OneTimeSecret label="Token" text={secret} />
      <p>Run this on the machine:</p>
      <CommandLine command={connectCommand(secret)} />
      <div class="invite-buttons"><button type="button" onClick={onDone}>Done</button></div>
    </div>
  )
}

function TokenEntry({ token, onGone }: { token: TokenView; onGone: () => Promise<void> }) {
  const isOver = token.until !== null && token.until <= Date.now() + clockSkew.value
  const facts = [ago('created', token.createdAt), token.usedAt === null ? 'not used yet' : ago('used', token.usedAt), token.until !== null && `${isOver ? 'expired' : 'expires'} ${clockTime(token.until - clockSkew.value)}`]
  return (
    <li>
      <Entry title={<bdi>{visible(token.name)}</bdi>} note={facts.filter(Boolean).join(' · ')}>
        <Action word="Revoke" sure="The machine is disconnected immediately." run={() => sendRequest({ do: 'dropToken', token: token.id }).then(onGone)} />
      </Entry>
    </li>
  )
}

function Passkeys() {
  const { all, trouble, load } = useHubList(async () => (await sendRequest({ do: 'passkeys' })).passkeys, 'passkeys')
  const add = async () => {
    await addPasskey(guessName(navigator.userAgent, navigator.maxTouchPoints))
    await load()
    const person = hubVisit.value?.person
    if (hubVisit.value && person) hubVisit.value = { ...hubVisit.value, person: { ...person, passkeys: person.passkeys + 1 } }
    toast('Passkey added.')
  }
  return (
    <Section id="passkeys" title="Passkeys">
      <p class="settings-lead">A passkey signs you in without a link, also on other devices that share it.</p>
      {trouble && <p class="settings-trouble" role="alert">{trouble}</p>}
      <Entry title={all?.length === 0 ? 'No passkeys yet' : 'Add another passkey'} note={hasPasskeys() ? 'Use this device, your phone or a security key.' : 'Passkeys need HTTPS and an address with a host name instead of numbers.'}>
        {hasPasskeys() && <Action word="Add a passkey" kind={all?.length === 0 ? 'main' : 'plain'} run={add} />}
      </Entry>
      <ul class="settings-list">{all?.map((passkey) => <PasskeyEntry key={passkey.id} passkey={passkey} onGone={load} />)}</ul>
    </Section>
  )
}

function PasskeyEntry({ passkey, onGone }: { passkey: PasskeyView; onGone: () => Promise<void> }) {
  const used = passkey.usedAt === null ? 'not used yet' : ago('used', passkey.usedAt)
  return (
    <li>
      <Entry title={<bdi>{visible(passkey.name)}</bdi>} note={`${ago('created', passkey.createdAt)} · ${used}`}>
        <Action word="Remove" sure="It can no longer be used to sign in." run={() => sendRequest({ do: 'dropPasskey', passkey: passkey.id }).then(onGone)} />
      </Entry>
    </li>
  )
}
