// What a session asks: a sheet from the bottom on a phone, a panel above the composer on a desktop.
//
// Both show one decision of the queue at a time. One that is settled by somebody else says so and goes.

import { useSignalEffect } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { AskView } from '../wire'
import { navigate, route, sessionPath } from '../lib/router'
import type { WatchedSession } from '../lib/watched-session'
import { toast } from '../lib/toast'
import { askTitle, titleOf } from '../lib/format'
import { phone } from '../ui/screen-size'
import { Icon } from '../ui/icons'
import { mayAnswerAlways, answeredHere } from './answer'
import { AskCard } from './ask-card'

export function AskPanel({ watched }: { watched: WatchedSession }) {
  const asks = asksOf(watched)
  const [chosen, setChosen] = useState<number | null>(null)
  const [hidden, setHidden] = useState<number | null>(null)
  useSettledElsewhere(watched)
  const here = route.value
  const linked = here.at === 'ask' ? here.ask : null
  useEffect(() => { if (linked !== null) setChosen(linked) }, [linked])
  const isGone = linked !== null && watched.fresh.value && !asks.some((one) => one.ask === linked) && !answeredHere({ session: watched.session, ask: linked })
  const current = asks.find((one) => one.ask === chosen) ?? asks[0]
  // Somebody who came for one thing does not decide on another before they know that it is another.
  if (!current || isGone) return linked !== null ? <LinkedIsGone watched={watched} /> : null
  const at = asks.indexOf(current)
  const next = () => setChosen(asks[(at + 1) % asks.length]?.ask ?? null)
  const title = titleOf({ title: watched.state.value?.title ?? null, folder: watched.state.value?.folder ?? '' })
  const card = <AskCard key={current.ask} ask={current} place={at + 1} of={asks.length} session={title} onNext={next} />
  if (!phone.value) return <DesktopAskPanel ask={current}>{card}</DesktopAskPanel>
  if (hidden === current.ask) return <WaitingBar ask={current} count={asks.length} onOpen={() => setHidden(null)} />
  return <BottomSheet label={askTitle(current)} onClose={() => setHidden(current.ask)}>{card}</BottomSheet>
}

/** What the browser kept may be answered long since: nothing is asked before the server has said so. */
function asksOf(watched: WatchedSession): readonly AskView[] {
  return watched.fresh.value ? (watched.state.value?.asks ?? []) : []
}

function DesktopAskPanel({ ask, children }: { ask: AskView; children: ComponentChildren }) {
  const box = useRef<HTMLElement>(null)
  // Keys act only while the panel has the focus: nobody allows a command by typing in the composer.
  const keys = (event: KeyboardEvent) => {
    // A key that is held would answer the next one, unseen.
    if (event.repeat) return
    const from = event.target as HTMLElement
    if (/^(TEXTAREA|INPUT|SELECT)$/.test(from.tagName) || event.ctrlKey || event.metaKey || event.altKey) return
    const button = box.current?.querySelector<HTMLButtonElement>(`[data-key="${CSS.escape(event.key)}"]`)
    if (!button || button.disabled) return
    event.preventDefault()
    button.click()
  }
  return (
    <section class="ask-panel" aria-label="Waiting for you" tabIndex={-1} ref={box} onKeyDown={keys} id="ask-panel" data-ask-panel={ask.ask}>
      {children}
      <p class="keys soft" aria-hidden="true"><kbd>A</kbd> moves here, then <kbd>Y</kbd> allow once {mayAnswerAlways() && <><kbd>Shift Y</kbd> always </>}<kbd>N</kbd> deny</p>
    </section>
  )
}

function BottomSheet({ label, onClose, children }: { label: string; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    const mine = dialog.current
    mine?.showModal()
    // The browser would choose the first button; what is asked comes before how to put it away.
    mine?.querySelector<HTMLElement>('.ask-body')?.focus()
    return () => mine?.close()
  }, [])
  return (
    <dialog ref={dialog} class="sheet ask-sheet" aria-label={label} onCancel={(event) => { event.preventDefault(); onClose() }}>
      <div class="sheet-inside">
        <button type="button" class="grip" aria-label="Hide this and show the session" onClick={onClose}><Icon name="down" /></button>
        {children}
      </div>
    </dialog>
  )
}

function WaitingBar({ ask, count, onOpen }: { ask: AskView; count: number; onOpen: () => void }) {
  return (
    <button type="button" class="waiting-bar" onClick={onOpen}>
      <Icon name="hand" /><span>{askTitle(ask)}{count > 1 && `, and ${count - 1} more`}</span><strong>Review</strong>
    </button>
  )
}

/** A link from a notification to something that was settled since. */
function LinkedIsGone({ watched }: { watched: WatchedSession }) {
  if (!watched.fresh.value) return <p class="note-bar" role="status">Loading the request…</p>
  return (
    <p class="note-bar" role="status">
      <span>This was already answered, or the turn has ended.</span>
      <button type="button" class="plain" onClick={() => navigate(sessionPath(watched.session), { replace: true })}>OK</button>
    </p>
  )
}

function useSettledElsewhere(watched: WatchedSession): void {
  const before = useRef<readonly AskView[]>([])
  useSignalEffect(() => {
    const asks = asksOf(watched)
    const open = new Set(asks.map((one) => one.ask))
    for (const gone of before.current) if (!open.has(gone.ask) && !answeredHere(gone)) announce(watched, gone)
    before.current = asks
  })
}

function announce(watched: WatchedSession, ask: AskView): void {
  const row = ask.row === null ? undefined : watched.rows.get(ask.row)?.peek()
  const by = row?.is === 'tool' ? (row.decided ?? row.reason) : null
  toast(by ? `${askTitle(ask)}: ${by}` : `${askTitle(ask)}: answered elsewhere.`)
}
