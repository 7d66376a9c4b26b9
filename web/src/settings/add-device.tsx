// One more device: what it may do, then a code to scan or to type, for as long as it lives.

import { useSignal } from '@preact/signals'
import { sendRequest, clockSkew } from '../lib/connection'
import { copyText } from '../lib/toast'
import { currentTime } from '../lib/format'
import type { Invitation, Role } from '../wire'
import { Action, Choice, Command, Entry } from './setting-controls'
import { Qr } from './qr-code'
import { ROLES } from './roles'

export function AddDevice() {
  const role = useSignal<Role | null>(null)
  const made = useSignal<Invitation | null>(null)
  const start = async () => { made.value = await sendRequest({ do: 'invite', role: role.value ?? 'driver' }) }
  if (made.value) return <Ticket invitation={made.value} again={start} onClose={() => { made.value = null; role.value = null }} />
  if (role.value === null) {
    return (
      <Entry title="Add a device" note="A phone, a tablet or another computer that can reach this server.">
        <button type="button" class="button-main" onClick={() => (role.value = 'driver')}>Add device</button>
      </Entry>
    )
  }
  const chosen = ROLES.find(([one]) => one === role.value)
  return (
    <div class="invite">
      <Choice name="role" title="What can it do?" note={chosen && `${chosen[1]}: ${chosen[2]}.`} value={role.value} options={ROLES.map(([value, word]) => [value, word] as const)} onChange={(value) => (role.value = value)} />
      <div class="invite-buttons">
        <button type="button" onClick={() => (role.value = null)}>Cancel</button>
        <Action word="Create code" kind="main" run={start} />
      </div>
    </div>
  )
}

function Ticket({ invitation, again, onClose }: { invitation: Invitation; again: () => Promise<void>; onClose: () => void }) {
  const left = Math.ceil((invitation.expiresAt - clockSkew.value - currentTime.value) / 1_000)
  if (left <= 0) {
    return (
      <div class="invite">
        <p class="invite-over">The code has expired.</p>
        <div class="invite-buttons">
          <button type="button" onClick={onClose}>Close</button>
          <Action word="Create a new code" kind="main" run={again} />
        </div>
      </div>
    )
  }
  return (
    <div class="invite">
      {isLoopback(invitation.url) && (
        <p class="settings-trouble">Other devices cannot reach this server, because it listens only on this machine. Start it with <Command text="ropewalk up --lan" />.</p>
      )}
      <div class="ticket">
        <Qr rows={invitation.qr} label="QR code, to scan with the other device’s camera" />
        <div class="ticket-words">
          <p>Scan this with the other device’s camera, or open</p>
          <p class="ticket-place">{placeOf(invitation.url)}</p>
          <p>there and enter</p>
          <p class="ticket-code">{invitation.code}</p>
          <p class="settings-note" role="timer">Works once, for {Math.floor(left / 60)}:{String(left % 60).padStart(2, '0')} more. The device then asks to pair, and you approve it here.</p>
        </div>
      </div>
      <div class="invite-buttons">
        <button type="button" onClick={() => void copyText(invitation.url)}>Copy link</button>
        <button type="button" onClick={onClose}>Done</button>
      </div>
    </div>
  )
}

/** Where the code is typed: the address without the code. */
function placeOf(url: string): string {
  return url.split('#')[0] ?? url
}

export function isLoopback(url: string): boolean {
  try {
    return /^(localhost|127(\.\d+){3}|\[::1\])$/.test(new URL(url).hostname)
  } catch {
    return false
  }
}
