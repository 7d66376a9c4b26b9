// A session: its head, the conversation, what it asks, and the composer; beside it, on a wide screen, a
// panel.

import { useSignalEffect } from '@preact/signals'
import { useEffect, useState } from 'preact/hooks'
import type { SessionState } from '../wire'
import { hasRole } from '../ask/answer'
import { AskPanel } from '../ask/ask-panel'
import { cards } from '../lib/board'
import { hubVisit, offlineMachineOf, isGuest, machineOf } from '../lib/hub-state'
import { lazy } from '../lib/lazy'
import { sendRequest, clockSkew, connectionState as line } from '../lib/connection'
import { changesPath, navigate, sessionPath } from '../lib/router'
import { lockOf } from '../lib/sealed-connection'
import { mustBeSealed } from '../lib/must-be-sealed'
import { forgetSession, unwatch, watch, type WatchedSession } from '../lib/watched-session'
import { copyText, toastOnError } from '../lib/toast'
import { clockTime, duration, money, currentTime, pluralize, titleOf } from '../lib/format'
import { Icon } from '../ui/icons'
import { Menu, type MenuItem } from '../ui/menu'
import { phone, wide } from '../ui/screen-size'
import { Sheet } from '../ui/sheet'
import { ConnectionDot } from '../ui/banners-and-toasts'
import { OfflineBanner, GuestBanner, SealedBanner } from './session-banners'
import { SessionFooter } from './session-footer'
import { SessionDetails, SidePanel } from './side-panel'
import { PlanChip } from './plan'
import { Transcript } from './transcript'

const ShareLinks = lazy(() => import('../hub/share-links'))

export function SessionPage({ session }: { session: string }) {
  const watched = useWatch(session)
  if (!watched) return null
  const state = watched.state.value
  const plan = state?.plan
  return (
    <>
      <main class="session" id="main">
        <Head watched={watched} />
        {plan && plan.steps.length > 0 && !wide.value && <PlanChip plan={plan} />}
        <GuestBanner />
        <OfflineBanner session={session} />
        <SealedBanner session={session} />
        <SessionEnded watched={watched} />
        <Transcript key={session} watched={watched} />
        <footer class="foot"><div class="column">{!cards.value.get(session)?.branch && <AskPanel watched={watched} />}<SessionFooter key={session} watched={watched} /></div></footer>
        <Announcer watched={watched} />
      </main>
      {wide.value && <SidePanel watched={watched} />}
    </>
  )
}

export function useWatch(session: string): WatchedSession | null {
  const [watched, setWatched] = useState<WatchedSession | null>(null)
  useEffect(() => {
    const one = watch(session)
    setWatched(one)
    return () => unwatch(one)
  }, [session])
  return watched?.session === session ? watched : null
}

function Head({ watched }: { watched: WatchedSession }) {
  const [sheet, setSheet] = useState<'rename' | 'delete' | 'details' | 'share' | null>(null)
  const state = watched.state.value
  const card = cards.value.get(watched.session)
  const title = titleOf({ title: state?.title ?? card?.title ?? null, folder: state?.folder ?? card?.folder ?? '', branch: card?.branch })
  // No machine has what a hub keeps of a session from before its state was put back.
  const onMachine = !card?.branch
  const items: MenuItem[] = [
    ...(onMachine ? [{ name: 'Changes', icon: 'changes', run: () => navigate(changesPath(watched.session)) } as const] : []),
    { name: 'Details', icon: 'info', run: () => setSheet('details') },
    // An address without its code is of no use to whoever has no other way in.
    ...(isGuest.value ? [{ name: 'Settings', icon: 'gear', run: () => navigate('/settings') } as const] : [
      { name: 'Copy link', icon: 'link', run: () => void copyText(location.origin + sessionPath(watched.session)) } as const,
    ]),
    ...(hubVisit.value?.person && (machineOf(watched.session)?.own ?? true) ? [{ name: 'Share', icon: 'share', run: () => setSheet('share') } as const] : []),
    ...(hasRole('driver') && onMachine ? [{ name: 'Rename', icon: 'pencil', run: () => setSheet('rename') } as const] : []),
    ...(hasRole('driver') && !isGuest.value ? [{ name: 'Delete', icon: 'bin', bad: true, run: () => setSheet('delete') } as const] : []),
  ]
  return (
    <header class="head">
      {phone.value && !isGuest.value && <a class="icon-button" href="/" aria-label="All sessions"><Icon name="back" /></a>}
      <div class="head-title">
        <h1 title={title}>{title}</h1>
        <p class="soft">{lockOf(watched.session) === null && mustBeSealed(watched.session) && <Sealed />}<StateWords watched={watched} />{state && <Meter state={state} />}</p>
      </div>
      <OtherViewers names={state?.others ?? []} />
      {!phone.value && !wide.value && <a class="icon-button" href={changesPath(watched.session)} aria-label="Changes"><Icon name="changes" /></a>}
      {phone.value && <ConnectionDot />}
      <Menu label="Session menu" items={items} />
      {sheet === 'rename' && <Rename session={watched.session} title={state?.title ?? ''} onClose={() => setSheet(null)} />}
      {sheet === 'delete' && <Delete session={watched.session} title={title} onClose={() => setSheet(null)} />}
      {sheet === 'share' && <Sheet label="Share this session" onClose={() => setSheet(null)}><ShareLinks session={watched.session} /></Sheet>}
      {sheet === 'details' && <Sheet label="Details" onClose={() => setSheet(null)}><SessionDetails watched={watched} /></Sheet>}
    </header>
  )
}

/** Only those who hold a key read this session; the server does not. */
function Sealed() {
  return <span class="word" title="End-to-end encrypted: the hub cannot read it"><Icon name="lock" size={14} /><span class="off-screen">End-to-end encrypted.</span></span>
}

function StateWords({ watched }: { watched: WatchedSession }) {
  const state = watched.state.value
  const away = offlineMachineOf(watched.session)
  if (cards.value.get(watched.session)?.branch) return <span class="word">Read-only copy</span>
  if (lockOf(watched.session) !== null) return <span class="word"><Icon name="lock" size={14} />Sealed</span>
  if (!watched.fresh.value) return <>{watched.toldAt.value !== null && line.value.is !== 'live' ? `Last update ${clockTime(watched.toldAt.value)}` : 'Loading…'}</>
  if (!state) return null
  if (line.value.is !== 'live' && watched.toldAt.value !== null) return <>{state.busy ? 'Was working' : 'Was ready'} at {clockTime(watched.toldAt.value)}</>
  if (away) return <span class="word">{`${state.busy ? 'Was working' : 'Was ready'} at ${clockTime(away.seenAt - clockSkew.value)}`}</span>
  if (state.asks.length > 0) return <span class="word is-waiting"><Icon name="hand" size={14} />Needs you</span>
  if (state.compacting) return <span class="word is-working"><span class="spinner" />Compacting the context</span>
  if (!state.busy) return <span class="word"><Icon name="check" size={14} />Ready</span>
  const since = state.turnAt === null ? 0 : currentTime.value + clockSkew.value - state.turnAt
  return <span class="word is-working"><span class="spinner" />Working{since > 2_000 && <span aria-hidden="true"> {duration(since)}</span>}</span>
}

/** How full the context is, and the cost; nothing of what is not known. */
function Meter({ state }: { state: SessionState }) {
  const share = state.contextSize > 0 && state.contextUsed > 0 ? Math.min(100, Math.round((state.contextUsed / state.contextSize) * 100)) : null
  const cost = state.costUsd === null || (state.costUsd === 0 && !state.unpriced) ? null : `${money(state.costUsd)}${state.unpriced ? ' or more' : ''}`
  if (!share && cost === null) return null
  const parts = [share !== null && share > 0 && `${share} % context`, cost]
  return <span class="meter soft" title={share === null ? undefined : `${state.contextUsed.toLocaleString()} of ${state.contextSize.toLocaleString()} tokens`}>{parts.filter(Boolean).join(' · ')}</span>
}

function OtherViewers({ names }: { names: readonly string[] }) {
  if (names.length === 0) return null
  const words = `Also viewing: ${names.join(', ')}`
  return <span class="others" title={words}><span class="off-screen">{words}</span>{names.slice(0, 3).map((name, place) => <span key={place} class="avatar" aria-hidden="true">{[...name][0]?.toUpperCase()}</span>)}</span>
}

function SessionEnded({ watched }: { watched: WatchedSession }) {
  const message = watched.endReason.value
  if (!message) return null
  return <p class="note-bar bad" role="alert"><Icon name="alert" size={18} /><span>{message}</span>{!isGuest.value && <a href="/">All sessions</a>}</p>
}

function Rename({ session, title, onClose }: { session: string; title: string; onClose: () => void }) {
  const [text, setText] = useState(title)
  const save = async (event: Event) => {
    event.preventDefault()
    if (await toastOnError(sendRequest({ do: 'rename', session, title: text.trim() }))) onClose()
  }
  return (
    <Sheet label="Rename" onClose={onClose}>
      <form class="decisions" onSubmit={(event) => void save(event)}>
        <label class="field">Title<input value={text} maxLength={200} autoFocus onInput={(event) => setText(event.currentTarget.value)} /></label>
        <button type="submit" class="decision allow" disabled={text.trim() === ''}>Rename</button>
      </form>
    </Sheet>
  )
}

function Delete({ session, title, onClose }: { session: string; title: string; onClose: () => void }) {
  const [busy, setBusy] = useState(false)
  const remove = async () => {
    setBusy(true)
    const done = await toastOnError(sendRequest({ do: 'delete', session }))
    setBusy(false)
    if (!done) return
    forgetSession(session)
    onClose()
    navigate('/', { replace: true })
  }
  return (
    <Sheet label="Delete this session?" onClose={onClose}>
      <div class="decisions">
        <p>This permanently deletes the conversation “{title}” and its change history. Files in the project stay as they are.</p>
        <button type="button" class="decision deny" disabled={busy} onClick={() => void remove()}>Delete permanently</button>
        <button type="button" class="decision" onClick={onClose}>Cancel</button>
      </div>
    </Sheet>
  )
}

/** Tells screen readers what matters, and not every word that streams. */
function Announcer({ watched }: { watched: WatchedSession }) {
  const [words, setWords] = useState('')
  const [busy, setBusy] = useState<boolean | null>(null)
  useSignalEffect(() => {
    const state = watched.state.value
    if (!state || !watched.fresh.value) return
    if (state.asks.length > 0) setWords(`The agent needs you: ${pluralize(state.asks.length, 'request')} waiting.`)
    else if (busy === true && !state.busy) setWords(`The turn has ended. ${lastSaid(watched)}`)
    else if (busy === false && state.busy) setWords('The agent is working.')
    setBusy(state.busy)
  })
  return <p class="off-screen" role="status" aria-live="polite">{words}</p>
}

function lastSaid(watched: WatchedSession): string {
  for (const id of watched.rows.ids.peek().slice(-20).reverse()) {
    const row = watched.rows.get(id)?.peek()
    if (row?.is === 'said') return row.text.replace(/[*_`#>]/g, '').slice(0, 300)
  }
  return ''
}
