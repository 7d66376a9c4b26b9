// One row: what somebody asked, what the agent said, thought or did, and how a turn ended.

import { type ReadonlySignal, useComputed } from '@preact/signals'
import { useState } from 'preact/hooks'
import type { Ended, Row } from '../wire'
import { sessionPath } from '../lib/router'
import { type WatchedSession, loadFullRow } from '../lib/watched-session'
import { copyText, toast, toastOnError, errorText } from '../lib/toast'
import { byteSize, clockTime, duration, money, pluralize } from '../lib/format'
import { ErrorBoundary } from '../ui/error-boundary'
import { IconButton } from '../ui/icon-button'
import { Icon } from '../ui/icons'
import { Markdown } from '../ui/markdown-and-output'
import { foldStateOf } from './fold-state'
import { PlanRow } from './plan'
import { ToolRow } from './tool-row'

/** Rows inside the row of a call. A signal, so that only the call is painted that has another one inside. */
export type NestedRows = ReadonlySignal<ReadonlyMap<number, readonly number[]>>

export interface RowProps {
  id: number
  watched: WatchedSession
  inside: NestedRows
}

type Of<K extends Row['is']> = Extract<Row, { is: K }>

/** More text than this is shown plain: Markdown of it would be more than a page can carry. */
const MARKDOWN_CHARS_MAX = 120_000

export function RowView({ id, watched, inside }: RowProps) {
  const row = watched.rows.get(id)?.value
  if (!row) return null
  return <ErrorBoundary again={row.rev} words="This could not be shown."><Kind row={row} watched={watched} inside={inside} /></ErrorBoundary>
}

function Kind({ row, watched, inside }: Omit<RowProps, 'id'> & { row: Row }) {
  switch (row.is) {
    case 'prompt':
      return <PromptRow row={row} watched={watched} />
    case 'said':
      return <SaidRow row={row} watched={watched} />
    case 'thought':
      return <ThoughtRow row={row} watched={watched} />
    case 'tool':
      return <ToolRow row={row} watched={watched} inside={inside} />
    case 'plan':
      return <PlanRow plan={row} />
    case 'question':
      return <QuestionRow row={row} />
    case 'notice':
      return <p class={`notice is-${row.level}`}><Icon name={row.level === 'info' ? 'info' : 'alert'} size={17} /><span>{row.text}</span></p>
    case 'note':
      return <p class="note soft">{row.text}</p>
    case 'ended':
      return <EndedRow row={row} watched={watched} />
    default:
      return <p class="note soft">This page is too old to show this entry. Reload it.</p>
  }
}

function PromptRow({ row, watched }: { row: Of<'prompt'>; watched: WatchedSession }) {
  const full = useFullRow(row, watched)
  const text = full.row?.is === 'prompt' ? full.row.text : row.text
  return (
    <div class="bubble" data-prompt>
      <p class="bubble-text">{text}</p>
      {row.attached.length > 0 && <p class="attached soft">{row.attached.join(', ')}</p>}
      {row.more > 0 && !full.row && <ShowAll more={row.more} onShow={full.load} />}
      <footer class="row-foot soft">
        <span>{row.from}</span> <time dateTime={new Date(row.at).toISOString()}>{clockTime(row.at)}</time>
        <CopyButton text={text} what="prompt" />
        <LinkButton watched={watched} row={row.id} />
      </footer>
    </div>
  )
}

function SaidRow({ row, watched }: { row: Of<'said'>; watched: WatchedSession }) {
  const full = useFullRow(row, watched)
  const text = full.row?.is === 'said' ? full.row.text : row.text
  // Computed by itself, so that a change of the state does not touch every row that was ever said.
  const running = useComputed(() => row.turn !== null && watched.state.value?.turn === row.turn && watched.rows.ids.value.at(-1) === row.id).value
  return (
    <div class="said">
      {text.length > MARKDOWN_CHARS_MAX ? <pre class="long" tabIndex={0}>{text}</pre> : <Markdown text={text} whole={!running} />}
      {row.more > 0 && !full.row && <ShowAll more={row.more} onShow={full.load} />}
      {!running && <div class="row-tools"><CopyButton text={text} what="answer" /></div>}
    </div>
  )
}

function ThoughtRow({ row, watched }: { row: Of<'thought'>; watched: WatchedSession }) {
  const opened = foldStateOf(watched.session, `row ${row.id}`)
  const open = opened.value ?? false
  const full = useFullRow(row, watched)
  const text = full.row?.is === 'thought' ? full.row.text : row.text
  const first = row.text.trim().split('\n', 1)[0] ?? ''
  return (
    <div class="thought">
      <button type="button" class="fold" aria-expanded={open} onClick={() => { opened.value = !open }}>
        <Icon name="thought" size={16} /><span class="fold-name">Thought</span>{!open && <span class="fold-line">{first.replace(/[*_`#]/g, '')}</span>}
      </button>
      {open && <>
        {text.length > MARKDOWN_CHARS_MAX ? <pre class="long" tabIndex={0}>{text}</pre> : <Markdown text={text} whole={false} />}
        {row.more > 0 && !full.row && <ShowAll more={row.more} onShow={full.load} />}
      </>}
    </div>
  )
}

function QuestionRow({ row }: { row: Of<'question'> }) {
  return (
    <div class="question-row">
      <p><Icon name="question" size={17} /><span>{row.text}</span></p>
      {row.reply !== null ? <p class="reply">{row.reply}{row.by && <span class="soft"> – {row.by}</span>}</p> : <p class="soft">Not answered{row.by && ` (${row.by})`}</p>}
    </div>
  )
}

const STOPS: Record<string, string> = {
  endTurn: 'Done',
  maxTokens: 'Stopped: the answer reached the model’s length limit',
  maxTurnRequests: 'Stopped: the turn reached a limit',
  refusal: 'The model refused to continue',
  cancelled: 'Stopped',
  failed: 'Failed',
  interrupted: 'Interrupted: the server stopped during this turn',
}

function EndedRow({ row, watched }: { row: Of<'ended'>; watched: WatchedSession }) {
  const bad = row.stop === 'failed' || row.stop === 'interrupted'
  return (
    <div class={`ended ${bad ? 'bad' : ''}`}>
      <p><Icon name={bad ? 'alert' : row.stop === 'endTurn' ? 'check' : 'stop'} size={16} /><span>{summary(row)}</span>
        <CopyButton text={() => turnText(watched, row.turn)} what="answer" /><LinkButton watched={watched} row={row.id} /></p>
      {row.error && <p class="error">{row.error}</p>}
    </div>
  )
}

/** Everything that was said in a turn. */
function turnText(watched: WatchedSession, turn: number | null): string {
  return watched.rows.ids.peek().flatMap((id) => {
    const row = watched.rows.get(id)?.peek()
    return row?.is === 'said' && row.turn === turn && row.under === null ? [row.text.trim()] : []
  }).join('\n\n')
}

function summary(row: Ended): string {
  const parts = [
    STOPS[row.stop] ?? row.stop,
    row.tools > 0 && pluralize(row.tools, 'action'),
    row.files > 0 && pluralize(row.files, 'file'),
    duration(row.elapsedMs),
    row.costUsd ? money(row.costUsd) : null,
  ]
  return parts.filter(Boolean).join(' · ')
}

export function ShowAll({ more, onShow }: { more: number; onShow: () => void }) {
  return <button type="button" class="plain" onClick={onShow}>Show all ({byteSize(more)} more)</button>
}

export function useFullRow(row: Row, watched: WatchedSession): { row: Row | null; load: () => void } {
  const [full, setFull] = useState<Row | null>(null)
  const load = () => {
    loadFullRow(watched.session, row.id).then(
      (found) => (found ? setFull(found) : toast('The server has no more of this text.', true)),
      (error: unknown) => toast(errorText(error), true),
    )
  }
  // What was loaded while it still grew is old when more has come; then it can be loaded again.
  return { row: full && full.rev >= row.rev ? full : null, load }
}

export function CopyButton({ text, what }: { text: string | (() => string); what: string }) {
  return <IconButton tiny label={`Copy ${what}`} icon="copy" size={16} onPress={() => void toastOnError(copyText(typeof text === 'string' ? text : text()))} />
}

function LinkButton({ watched, row }: { watched: WatchedSession; row: number }) {
  const address = () => `${location.origin}${sessionPath(watched.session)}#r${row}`
  return <IconButton tiny label="Copy link to this entry" icon="link" size={16} onPress={() => void toastOnError(copyText(address()))} />
}
