// Notifications of this device: on, off, muted for a while, or why there are none and what would help.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { writeStored, readStored } from '../lib/browser-storage'
import { sendRequest, hello, clockSkew } from '../lib/connection'
import { toast } from '../lib/toast'
import { clockTime, currentTime } from '../lib/format'
import { pushFacts, pushState, turnOff, turnOn, type PushState } from '../push'
import { devices } from './paired-devices'
import { nextMorning } from './next-morning'
import { Action, Entry, Section } from './setting-controls'

export function Notifications() {
  const stands = useSignal<PushState | null>(null)
  const key = hello.value?.pushKey ?? null
  useEffect(() => void pushFacts().then((found) => (stands.value = pushState(found))), [key, stands])
  return (
    <Section id="notifications" title="Notifications">
      <p class="settings-lead">
        A notification says only that an agent needs you, has finished or failed. What it is about never leaves the server.
      </p>
      {stands.value === null ? null : <Standings stands={stands.value} set={(value) => (stands.value = value)} serverKey={key} />}
    </Section>
  )
}

function Standings({ stands, set, serverKey }: { stands: PushState; set: (value: PushState) => void; serverKey: string | null }) {
  switch (stands) {
    case 'off':
      return (
        <Entry title="Off on this device" note="The browser then asks you once for permission.">
          <Action word="Turn on" kind="main" run={async () => { await turnOn(serverKey ?? ''); set('on') }} />
        </Entry>
      )
    case 'on':
      return (
        <>
          <Entry title="On" note="You are notified when Ropewalk is not on your screen.">
            <Action word="Turn off" run={async () => { await turnOff(); set('off') }} />
          </Entry>
          <Entry title="Test notification" note="Arrives within seconds, also on a locked screen.">
            <Action word="Send test" run={async () => { await sendRequest({ do: 'tryPush' }); toast('Test notification sent.') }} />
          </Entry>
          <Mute />
        </>
      )
    case 'blocked':
      return <Entry title="Blocked by the browser" note="Allow notifications for this address in the browser’s site settings (next to the address, or in the settings of the installed app), then come back." />
    case 'homeScreen':
      return (
        <Entry
          title="Add Ropewalk to the Home Screen first"
          note={<>On iPhone and iPad, only apps on the Home Screen get notifications: tap <b>Share</b>, then <b>Add to Home Screen</b>, open Ropewalk from there and come back to this page.</>}
        />
      )
    case 'insecure':
      return <Entry title="Notifications need HTTPS" note="Browsers allow them only over HTTPS with a certificate that they trust, or on the machine itself (127.0.0.1)." />
    case 'browser':
      return <Entry title="Not available in this browser" note="It does not support push notifications, or they are off in a private window." />
    case 'server':
      return <Entry title="Not available on this server" note="It could not create or read its push keys. Its log says why." />
  }
}

/** Only a device mutes itself, so what was asked for here holds; owners are told it by the server too. */
function Mute() {
  const mine = devices.value?.find(({ id }) => id === hello.value?.device)
  const asked = useSignal<number | null | undefined>(readStored<number>('choice.mutedUntil') ?? undefined)
  const until = asked.value === undefined ? (mine?.mutedUntil ?? null) : asked.value
  const isMuted = until !== null && until > currentTime.value + clockSkew.value
  const mute = async (to: number | null) => {
    await sendRequest({ do: 'mute', until: to })
    asked.value = to
    writeStored('choice.mutedUntil', to)
  }
  if (isMuted) {
    return (
      <Entry title={`Muted until ${clockTime(until - clockSkew.value)}`}>
        <Action word="Unmute" run={() => mute(null)} />
      </Entry>
    )
  }
  return (
    <Entry title="Mute" note="Only on this device. Requests stay in the inbox.">
      <Action word="1 hour" run={() => mute(Date.now() + clockSkew.value + 3_600_000)} />
      <Action word="Until morning" run={() => mute(nextMorning(new Date()) + clockSkew.value)} />
    </Entry>
  )
}
