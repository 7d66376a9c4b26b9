// Who can come in: devices and what they may do, those who knock, and a way for one more.

import { useSignal } from '@preact/signals'
import { hubVisit, isGuest } from '../lib/hub-state'
import { forgetContent } from '../lib/browser-storage'
import { sendRequest, hello } from '../lib/connection'
import { removeProof, proofHeaders } from '../lib/sign-in-proof'
import { forgetKeys } from '../lib/sealed-connection'
import { ago, visible } from '../lib/format'
import type { Device, Knock, Role } from '../wire'
import { turnOff } from '../push'
import { devices, knocks, loadDevices } from './paired-devices'
import { AddDevice } from './add-device'
import { Action, Entry, Section } from './setting-controls'
import { ROLES, roleLabel } from './roles'

export function Devices() {
  const isOwner = hello.value?.role === 'owner'
  return (
    <Section id="devices" title="Devices">
      {knocks.value.map((knock) => <KnockEntry key={knock.id} knock={knock} />)}
      {isOwner && <AddDevice />}
      {isOwner && <DeviceList />}
      {!isOwner && hello.value && (
        <Entry title="This device" note={`${roleLabel(hello.value.role)}. Only an owner can manage devices.`}>
          {hello.value.device && <SignOut />}
        </Entry>
      )}
    </Section>
  )
}

export function DeviceList() {
  const list = devices.value
  if (list === null) return <p class="settings-none" role="status">Loading…</p>
  if (list.length === 0) return <p class="settings-none">{hubVisit.value ? 'No browsers listed.' : 'No devices are paired. You are signed in with the server’s own token.'}</p>
  const mine = hello.value?.device ?? null
  const others = list.filter(({ id }) => id !== mine)
  return (
    <>
      <ul class="settings-list">{list.map((device) => <DeviceEntry key={device.id} device={device} />)}</ul>
      {mine !== null && others.length > 1 && (
        <Entry title="All other devices" note={hubVisit.value ? 'Each of them has to sign in again.' : 'Each of them has to be paired again.'}>
          <Action word="Sign out all others" sure={`${others.length} devices are signed out immediately.`} run={() => revokeAll(others)} />
        </Entry>
      )}
    </>
  )
}

/** One after the other: what cannot be revoked says why, and those before it are out. */
async function revokeAll(list: readonly Device[]): Promise<void> {
  for (const { id } of list) await sendRequest({ do: 'revoke', device: id })
  await loadDevices()
}

function DeviceEntry({ device }: { device: Device }) {
  const isMine = device.id === hello.value?.device
  const seen = device.seenAt === null ? 'never used' : ago('last seen', device.seenAt)
  // At a hub everybody owns what is theirs.
  const facts = [hubVisit.value ? null : roleLabel(device.role), seen, device.push ? 'notifications on' : null].filter(Boolean)
  return (
    <li class="settings-entry">
      <div class="settings-words">
        <div class="settings-title"><bdi>{visible(device.name)}</bdi>{isMine && <span class="settings-badge">this device</span>}</div>
        <div class="settings-note">{facts.join(' · ')}</div>
      </div>
      <div class="settings-control">
        {isMine ? <SignOut /> : <Action word="Revoke" sure="This device is signed out immediately." run={() => sendRequest({ do: 'revoke', device: device.id }).then(loadDevices)} />}
      </div>
    </li>
  )
}

/** Everything that this browser kept goes with it. */
export function SignOut({ word = 'Sign out', sure = 'Sign out on this device?' }: { word?: string; sure?: string }) {
  const leave = async () => {
    await turnOff().catch(() => {})
    const response = await fetch('/ui/leave', { method: 'POST', headers: proofHeaders() })
    if (!response.ok && response.status !== 401) throw new Error('Could not sign out: the server refused. Try again, or revoke this device from another one.')
    await forgetKeys().catch(() => {})
    forgetContent()
    await removeProof(isGuest.peek())
    location.replace(hubVisit.peek() ? '/' : '/login')
  }
  return <Action word={word} sure={sure} run={leave} />
}

/** The words stand on the other screen too: who is let in is the one that shows them. */
function KnockEntry({ knock }: { knock: Knock }) {
  const role = useSignal<Role>(knock.role)
  const answer = (as: Role | null) => sendRequest({ do: 'admit', knock: knock.id, role: as }).then(loadDevices)
  return (
    <div class="knock" role="group" aria-label={`${knock.name} wants to pair`}>
      <p class="knock-who"><b><bdi>{visible(knock.name)}</bdi></b> wants to pair. It must show these words:</p>
      <p class="knock-words">{knock.words}</p>
      <label class="knock-role">
        <span>Role</span>
        <select value={role.value} onChange={(event) => (role.value = event.currentTarget.value as Role)}>
          {ROLES.map(([value, word, may]) => <option key={value} value={value}>{word}: {may}</option>)}
        </select>
      </label>
      <div class="knock-buttons">
        <Action word="Reject" run={() => answer(null)} />
        <Action word="Approve" kind="main" run={() => answer(role.value)} />
      </div>
      <p class="settings-note">If the words differ, reject it: someone else has the code.</p>
    </div>
  )
}

