// Notifications of this device: on, off, muted for a while, or why there are none and what would help.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { keep, kept } from '../lib/keep'
import { ask, hello, skew } from '../lib/line'
import { toast } from '../lib/toast'
import { clock, now } from '../lib/words'
import { facts, standing, turnOff, turnOn, type Standing } from '../push'
import { devices } from './guests'
import { nextMorning } from './morning'
import { Action, Entry, Section } from './parts'

export function Notifications() {
  const stands = useSignal<Standing | null>(null)
  const key = hello.value?.pushKey ?? null
  useEffect(() => void facts().then((found) => (stands.value = standing(found))), [key, stands])
  return (
    <Section id="notifications" title="Notifications">
      <p class="settings-lead">
        A push says only that an agent needs you or that a turn has ended, and where. What it is about never leaves the server.
      </p>
      {stands.value === null ? null : <Standings stands={stands.value} set={(value) => (stands.value = value)} serverKey={key} />}
    </Section>
  )
}

function Standings({ stands, set, serverKey }: { stands: Standing; set: (value: Standing) => void; serverKey: string | null }) {
  switch (stands) {
    case 'off':
      return (
        <Entry title="Off on this device" note="The browser asks you once.">
          <Action word="Turn on" kind="main" run={async () => { await turnOn(serverKey ?? ''); set('on') }} />
        </Entry>
      )
    case 'on':
      return (
        <>
          <Entry title="On" note="You are told when you are not looking.">
            <Action word="Turn off" run={async () => { await turnOff(); set('off') }} />
          </Entry>
          <Entry title="Try it" note="It arrives within seconds, also on a locked screen.">
            <Action word="Send a test" run={async () => { await ask({ do: 'tryPush' }); toast('A test is on its way.') }} />
          </Entry>
          <Mute />
        </>
      )
    case 'blocked':
      return <Entry title="Blocked by the browser" note="Allow notifications for this address in the browser’s site settings (beside the address, or in the settings of the installed app), then come back." />
    case 'homeScreen':
      return (
        <Entry
          title="First put Ropewalk on the Home Screen"
          note={<>On iPhone and iPad only apps of the Home Screen are told: tap <b>Share</b>, then <b>Add to Home Screen</b>, open it from there and come back to this page.</>}
        />
      )
    case 'insecure':
      return <Entry title="Not over plain HTTP" note="Browsers allow notifications only over HTTPS with a certificate that they trust, or on the machine itself (127.0.0.1)." />
    case 'browser':
      return <Entry title="This browser has none" note="It has no push messages, or they are off in a private window." />
    case 'server':
      return <Entry title="This server sends none" note="It could not make or read its keys for pushes; its log says why." />
  }
}

/** Only a device mutes itself, so what was asked for here holds; owners are told it by the server too. */
function Mute() {
  const mine = devices.value?.find(({ id }) => id === hello.value?.device)
  const asked = useSignal<number | null | undefined>(kept<number>('choice.mutedUntil') ?? undefined)
  const until = asked.value === undefined ? (mine?.mutedUntil ?? null) : asked.value
  const isMuted = until !== null && until > now.value + skew.value
  const mute = async (to: number | null) => {
    await ask({ do: 'mute', until: to })
    asked.value = to
    keep('choice.mutedUntil', to)
  }
  if (isMuted) {
    return (
      <Entry title={`Muted until ${clock(until - skew.value)}`}>
        <Action word="Unmute" run={() => mute(null)} />
      </Entry>
    )
  }
  return (
    <Entry title="Mute" note="This device only. What waits stays in the inbox.">
      <Action word="1 hour" run={() => mute(Date.now() + skew.value + 3_600_000)} />
      <Action word="Until morning" run={() => mute(nextMorning(new Date()) + skew.value)} />
    </Entry>
  )
}
