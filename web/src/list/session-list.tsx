// The list of sessions: what needs somebody first, then the others. A column beside everything on a
// desktop, a screen of its own on a phone.

import { signal, useSignalEffect } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Card } from '../wire'
import { openAsks, cards, boardLoaded, loadOlder, olderCursor, searchSessions, sorted } from '../lib/board'
import { hubVisit, offlineMachineOf, machineOf, machineFilter } from '../lib/hub-state'
import { hello, connectionState } from '../lib/connection'
import { route, routeSession, sessionPath } from '../lib/router'
import { lockOf } from '../lib/sealed-connection'
import { mustBeSealed } from '../lib/must-be-sealed'
import { toastOnError } from '../lib/toast'
import { age, baseName, money, plainName, STATE_LABELS, titleOf, withoutMarkdown } from '../lib/format'
import { Icon, type IconName } from '../ui/icons'
import { ConnectionDot } from '../ui/banners-and-toasts'
import { AskListItem } from '../ask/ask-list-item'
import { EmptyList } from './empty-list'
import { MachineFilter, SessionMachine } from './machines'

const SEARCH_AFTER_MS = 250
const SHOWN_ASKS = 3

export const filter = signal('')

const STATE_ICONS: Record<Card['state'], IconName> = { waiting: 'hand', working: 'work', elsewhere: 'away', done: 'check', failed: 'alert', empty: 'dot' }

export function SessionList() {
  const found = useFound()
  const only = machineFilter.value
  const shown = (found ?? sorted.value).filter((card) => only === null || machineOf(card.session)?.id === only)
  const none = cards.value.size === 0 && boardLoaded.value
  return (
    <nav class="rail" aria-label="Sessions">
      <RailHead />
      {!none && <FilterBox />}
      <MachineFilter />
      <div class="rail-scroll">
        {hubVisit.value?.person?.passkeys === 0 && <p class="rail-note"><span>Without a passkey you need a new link to sign in again.</span><a href="/settings/passkeys">Add a passkey</a></p>}
        {found === null && <NeedsYou />}
        {none ? <EmptyList /> : <Cards cards={shown} />}
        {only !== null && found === null && shown.length === 0 && <p class="empty">This machine has no sessions here.</p>}
        {found?.length === 0 && <p class="empty">No session has this in its title{hubVisit.value ? ', folder or machine name' : ' or folder'}.</p>}
        {!boardLoaded.value && cards.value.size === 0 && connectionState.value.is !== 'signedOut' && <p class="empty" role="status">Loading sessions…</p>}
        {found === null && olderCursor.value !== null && (
          <button type="button" class="plain wide" onClick={() => void toastOnError(loadOlder())}>Show older sessions</button>
        )}
      </div>
      <div class="rail-foot">
        <a class="button primary wide" href="/new"><Icon name="plus" /> New session</a>
      </div>
    </nav>
  )
}

function RailHead() {
  const waiting = openAsks.value.length
  return (
    <header class="rail-head">
      <a class="brand" href="/"><img src="/icon.svg" alt="" width="24" height="24" /><span>Ropewalk</span></a>
      <ConnectionDot />
      <span class="host soft">{plainName(hello.value?.host ?? '')}</span>
      <span class="gap" />
      <a class="icon-button" href="/inbox" aria-label={waiting > 0 ? `Inbox, ${waiting} waiting` : 'Inbox'} aria-current={route.value.at === 'inbox' ? 'page' : undefined}>
        <Icon name="inbox" />{waiting > 0 && <span class="badge" aria-hidden="true">{waiting}</span>}
      </a>
      <a class="icon-button" href="/settings" aria-label="Settings" aria-current={route.value.at === 'settings' ? 'page' : undefined}><Icon name="gear" /></a>
    </header>
  )
}

function FilterBox() {
  return (
    <label class="filter">
      <Icon name="search" size={18} />
      <span class="off-screen">Filter sessions</span>
      <input type="search" id="filter" placeholder="Filter" value={filter.value} autocomplete="off" spellcheck={false}
        onInput={(event) => { filter.value = event.currentTarget.value }}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return
          filter.value = ''
          event.currentTarget.blur()
        }} />
      <kbd class="desktop-only">/</kbd>
    </label>
  )
}

function NeedsYou() {
  const waiting = openAsks.value
  if (waiting.length === 0) return null
  return (
    <section class="needs-you" aria-labelledby="needs-you">
      <h2 id="needs-you">Needs you ({waiting.length})</h2>
      <ul class="bare">{waiting.slice(0, SHOWN_ASKS).map((one, place) => <li key={`${one.session} ${one.ask}`}><AskListItem ask={one} place={place} /></li>)}</ul>
      {waiting.length > SHOWN_ASKS && <a class="more" href="/inbox">All {waiting.length}</a>}
    </section>
  )
}

export function Cards({ cards: shown }: { cards: Card[] }) {
  return <ul class="bare cards" aria-label="All sessions">{shown.map((card) => <li key={card.session}><CardLink card={card} /></li>)}</ul>
}

function CardLink({ card }: { card: Card }) {
  const here = routeSession.value === card.session
  const ref = useRef<HTMLAnchorElement>(null)
  useEffect(() => { if (here) ref.current?.scrollIntoView({ block: 'nearest' }) }, [here])
  return (
    <a ref={ref} class="card" href={sessionPath(card.session)} aria-current={here ? 'page' : undefined} data-session={card.session}>
      <span class="card-row">
        <span class="card-title">{titleOf(card)}</span>
        <span class="card-age soft">{age(card.updatedAt)}</span>
      </span>
      <span class="card-row">
        <CardState card={card} />
        <span class="card-place soft">{baseName(card.folder)}{card.costUsd ? ` · ${money(card.costUsd)}` : ''}</span>
      </span>
      {card.line && <span class="card-line soft">{withoutMarkdown(card.line)}</span>}
      <SessionMachine session={card.session} />
    </a>
  )
}

/** What a machine that is away last said of a session was true then. */
const BEFORE: Partial<Record<Card['state'], string>> = { waiting: 'Needed you', working: 'Was working' }

function CardState({ card }: { card: Card }) {
  if (lockOf(card.session) !== null) return <span class="card-state"><Icon name="lock" size={15} />{STATE_LABELS[card.state] ?? card.state}</span>
  const before = offlineMachineOf(card.session) && BEFORE[card.state]
  if (before) return <span class="card-state"><Icon name="away" size={15} />{before}</span>
  return <span class={`card-state is-${card.state}`}><Icon name={STATE_ICONS[card.state] ?? 'dot'} size={15} />{STATE_LABELS[card.state] ?? card.state}</span>
}

/** Cards that match the filter: those at hand at once, and after a moment what the server finds. */
function useFound(): Card[] | null {
  const [remote, setRemote] = useState<{ text: string; cards: Card[] } | null>(null)
  useSignalEffect(() => {
    const text = filter.value.trim()
    if (text === '' || connectionState.peek().is !== 'live') return
    const timer = setTimeout(() => {
      searchSessions(text).then((found) => setRemote({ text, cards: found }), () => {})
    }, SEARCH_AFTER_MS)
    return () => clearTimeout(timer)
  })
  const text = filter.value.trim()
  if (text === '') return null
  const words = text.toLowerCase().split(/\s+/)
  const local = sorted.value.filter((card) => {
    const hay = `${card.title ?? ''} ${card.folder} ${machineOf(card.session)?.name ?? ''}`.toLowerCase()
    return words.every((word) => hay.includes(word))
  })
  if (remote?.text !== text) return local
  const have = new Set(local.map((card) => card.session))
  return [...local, ...remote.cards.filter(({ session }) => !have.has(session) && !mustBeSealed(session))]
}
