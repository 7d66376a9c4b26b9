// Settings at a hub: my machines and what they come in with, how I come in myself, and everybody else.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { MachineDot, MachineName, presence } from '../list/machines'
import { connectCommand } from '../list/empty'
import { at, machines } from '../lib/hub'
import { ask, hello, skew } from '../lib/line'
import { toast } from '../lib/toast'
import { ago, clock, several, visible } from '../lib/words'
import { guessName } from '../pair/door'
import { DeviceList, SignOut } from '../settings/devices'
import { Action, Entry, revealWhileFilling, Section } from '../settings/parts'
import { roleWord } from '../settings/roles'
import { CommandLine } from '../ui/button'
import { Icon } from '../ui/icons'
import type { MachineView, PasskeyView, TokenView } from '../wire'
import { type End, endOf } from './ends'
import { useList } from './lists'
import { addPasskey, hasPasskeys } from './passkey'
import { People } from './people'
import { Secret } from './secret'
import './hub.css'

export default function Account({ part }: { part: string | null }) {
  const here = at.value
  // These sections come after the page that names them: whoever was sent to one is taken there now.
  useEffect(() => (part === null ? undefined : revealWhileFilling(part)), [])
  if (!here?.person) return <Guest />
  return (
    <>
      <Machines />
      <Tokens />
      <Passkeys />
      <Section id="devices" title="Signed-in browsers">
        <p class="settings-lead">Browsers that are signed in as you. Each stays so for 30 days after its last visit.</p>
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
      <Entry title={`You are here as ${roleWord(hello.value?.role ?? 'viewer').toLowerCase()}`} note={at.value?.until == null ? 'You see one session.' : `You see one session, until ${clock(at.value.until - skew.value)}.`}>
        <SignOut word="Leave" />
      </Entry>
    </Section>
  )
}

function Machines() {
  const mine = machines.value.filter(({ own }) => own)
  return (
    <Section id="machines" title="Machines">
      <p class="settings-lead">Where your agents run. Their sessions are mirrored here, and worked on there.</p>
      {mine.length === 0 && <p class="settings-none">No machine has come yet. Make a token below, and start Ropewalk with it.</p>}
      <ul class="settings-list">{mine.map((machine) => <MachineEntry key={machine.id} machine={machine} />)}</ul>
    </Section>
  )
}

function MachineEntry({ machine }: { machine: MachineView }) {
  const facts = [presence(machine), several(machine.sessions.length, 'session'), machine.version && `Ropewalk ${visible(machine.version)}`, machine.sealed && 'sealed: the hub cannot read it']
  return (
    <li>
      <Entry title={<span class="machine-line"><MachineDot machine={machine} /><MachineName machine={machine} />{machine.sealed && <Icon name="lock" size={15} />}</span>} note={facts.filter(Boolean).join(' · ')}>
        {machine.sealed && <a class="button small" href="/pair">Pair this device</a>}
        <Action word="Forget" sure="What is mirrored of it is deleted here; the machine keeps its own." run={() => ask({ do: 'forgetMachine', machine: machine.id })} />
      </Entry>
    </li>
  )
}

const TOKEN_ENDS: readonly (readonly [End, string])[] = [['never', 'Never'], ['day', 'In a day'], ['week', 'In 7 days'], ['date', 'On a date']]

function Tokens() {
  const made = useSignal<{ secret: string; token: TokenView } | null>(null)
  const { all, trouble, load } = useList(async () => (await ask({ do: 'tokens' })).tokens, 'tokens')
  return (
    <Section id="tokens" title="Tokens for machines">
      <p class="settings-lead">A machine shows its token when it connects. One for each machine, so that each can be taken back alone.</p>
      {trouble && <p class="settings-trouble" role="alert">{trouble}</p>}
      {made.value
        ? <MadeToken secret={made.value.secret} token={made.value.token} onDone={() => { made.value = null }} />
        : <MakeToken onMade={(token) => { made.value = token; void load() }} />}
      {all?.length === 0 && <p class="settings-none">There are no tokens yet.</p>}
      <ul class="settings-list">{all?.map((token) => <TokenEntry key={token.id} token={token} onGone={load} />)}</ul>
    </Section>
  )
}

function MakeToken({ onMade }: { onMade: (made: { secret: string; token: TokenView }) => void }) {
  const name = useSignal('')
  const end = useSignal<End>('never')
  const date = useSignal('')
  const make = async () => {
    const until = endOf(end.value, date.value, Date.now() + skew.value)
    if (until === null && end.value !== 'never') throw new Error('Choose a day that is not over.')
    onMade(await ask({ do: 'makeToken', name: name.value.trim(), until }))
  }
  return (
    <div class="hub-make">
      <label class="field">Which machine is it for?
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} maxLength={60} placeholder="laptop" autocomplete="off" />
      </label>
      <label class="field">It ends
        <select value={end.value} onChange={(event) => (end.value = event.currentTarget.value as End)}>{TOKEN_ENDS.map(([value, word]) => <option key={value} value={value}>{word}</option>)}</select>
      </label>
      {end.value === 'date' && <label class="field">At the end of<input type="date" value={date.value} onInput={(event) => (date.value = event.currentTarget.value)} /></label>}
      <Action word="Make a token" kind="main" disabled={name.value.trim() === ''} run={make} />
    </div>
  )
}

function MadeToken({ secret, token, onDone }: { secret: string; token: TokenView; onDone: () => void }) {
  return (
    <div class="invite" role="status">
      <p>The token <b><bdi>{visible(token.name)}</bdi></b> is shown this once:</p>
      <Secret label="Token" text={secret} />
      <p>On the machine:</p>
      <CommandLine command={connectCommand(secret)} />
      <div class="invite-buttons"><button type="button" onClick={onDone}>Done</button></div>
    </div>
  )
}

function TokenEntry({ token, onGone }: { token: TokenView; onGone: () => Promise<void> }) {
  const isOver = token.until !== null && token.until <= Date.now() + skew.value
  const facts = [ago('made', token.createdAt), token.usedAt === null ? 'not used yet' : ago('used', token.usedAt), token.until !== null && `${isOver ? 'ended' : 'ends'} ${clock(token.until - skew.value)}`]
  return (
    <li>
      <Entry title={<bdi>{visible(token.name)}</bdi>} note={facts.filter(Boolean).join(' · ')}>
        <Action word="Revoke" sure="The machine is cut off at once." run={() => ask({ do: 'dropToken', token: token.id }).then(onGone)} />
      </Entry>
    </li>
  )
}

function Passkeys() {
  const { all, trouble, load } = useList(async () => (await ask({ do: 'passkeys' })).passkeys, 'passkeys')
  const add = async () => {
    await addPasskey(guessName(navigator.userAgent, navigator.maxTouchPoints))
    await load()
    const person = at.value?.person
    if (at.value && person) at.value = { ...at.value, person: { ...person, passkeys: person.passkeys + 1 } }
    toast('The passkey is added.')
  }
  return (
    <Section id="passkeys" title="Passkeys">
      <p class="settings-lead">With one you come in again without a link, also on devices that share it.</p>
      {trouble && <p class="settings-trouble" role="alert">{trouble}</p>}
      <Entry title={all?.length === 0 ? 'You have none' : 'One more'} note={hasPasskeys() ? 'Your device, your phone or a key that you plug in.' : 'Browsers make them only over HTTPS, at an address that is a name.'}>
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
      <Entry title={<bdi>{visible(passkey.name)}</bdi>} note={`${ago('made', passkey.createdAt)} · ${used}`}>
        <Action word="Remove" sure="Nobody comes in with it any more." run={() => ask({ do: 'dropPasskey', passkey: passkey.id }).then(onGone)} />
      </Entry>
    </li>
  )
}
