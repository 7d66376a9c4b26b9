// A tool call: one line, which opens. A running one shows the end of its output; a failed one is open.

import { useComputed } from '@preact/signals'
import { useMemo } from 'preact/hooks'
import type { Row } from '../wire'
import { prettyJson } from '../ask/preview'
import { Diff } from '../changes/diff'
import { plainText } from '../lib/ansi'
import type { WatchedSession } from '../lib/watched-session'
import { clockSkew } from '../lib/connection'
import { byteSize, duration, currentTime, visible } from '../lib/format'
import { Icon, kindIcon } from '../ui/icons'
import { Output } from '../ui/markdown-and-output'
import { foldStateOf } from './fold-state'
import { CopyButton, type NestedRows, RowView, ShowAll, useFullRow } from './row-view'

type ToolRowData = Extract<Row, { is: 'tool' }>

const RUNNING_LINES = 3
const OPEN_LINES = 400

const STATES = { running: 'Running', done: 'Done', failed: 'Failed', refused: 'Refused' } as const

interface ToolProps {
  row: ToolRowData
  watched: WatchedSession
  inside: NestedRows
}

const NONE: readonly number[] = []

export function ToolRow({ row, watched, inside }: ToolProps) {
  const opened = foldStateOf(watched.session, `row ${row.id}`)
  const open = opened.value ?? row.state === 'failed'
  const within = useComputed(() => inside.value.get(row.id) ?? NONE).value
  const running = row.state === 'running'
  return (
    <div class={`tool is-${row.state}`} data-tool={row.tool} data-state={row.state}>
      <button type="button" class="tool-head" aria-expanded={open} onClick={() => { opened.value = !open }}>
        <Icon name={kindIcon(row.kind)} size={17} />
        <span class="tool-title">{visible(row.title || row.tool)}</span>
        {row.diffs.length > 0 && <Counts row={row} />}
        <span class="tool-state"><StateMark state={row.state} /><Elapsed row={row} /></span>
      </button>
      {!open && running && row.output !== '' && <Output text={row.output.slice(-4_000)} lines={RUNNING_LINES} label="Last lines of the output" />}
      {!open && running && within.length > 0 && <Within ids={within.slice(-RUNNING_LINES)} watched={watched} inside={inside} />}
      {open && <ToolBody row={row} watched={watched} inside={inside} within={within} />}
    </div>
  )
}

function ToolBody({ row: shown, watched, inside, within }: ToolProps & { within: readonly number[] }) {
  const full = useFullRow(shown, watched)
  const row = full.row?.is === 'tool' ? full.row : shown
  const missing = row.diffs.reduce((sum, diff) => sum + diff.more, 0)
  const [command, given] = useMemo(() => [commandOf(row.input), prettyJson(row.input)], [row.input])
  const input = row.input !== '' && row.input !== '{}' && row.input !== 'null'
  return (
    <div class="tool-body">
      {row.reason && <p class="reason">{row.reason}</p>}
      {row.decided && <p class="soft">{row.decided}</p>}
      {input && (
        <div class="tool-input">
          <pre tabIndex={0} aria-label="Input" class={command === null ? '' : 'command'}>{visible(command ?? given)}</pre>
          <CopyButton text={command ?? given} what="input" />
        </div>
      )}
      {row.diffs.map((diff) => <Diff key={diff.path} diff={diff} compact={row.diffs.length === 1} />)}
      {within.length > 0 && <Within ids={within} watched={watched} inside={inside} />}
      {shown.more > 0 && !full.row && <ShowAll more={shown.more} onShow={full.load} />}
      {missing > 0 && shown.more === 0 && !full.row && <button type="button" class="plain" onClick={full.load}>Show the whole change ({missing} more lines)</button>}
      {row.output !== '' && <div class="tool-output"><Output text={row.output} lines={OPEN_LINES} label="Output" /><CopyButton text={() => plainText(row.output)} what="output" /></div>}
      <Facts row={row} />
    </div>
  )
}

function Facts({ row }: { row: ToolRowData }) {
  const facts = [
    row.tool,
    row.exit !== null && row.exit !== 0 && `exit code ${row.exit}`,
    row.signal && `killed by ${row.signal}`,
    row.places.length > 0 && row.places.slice(0, 8).join(', '),
    row.more > 0 && `${byteSize(row.more)} of earlier output not shown`,
  ]
  return <p class="tool-facts soft">{facts.filter(Boolean).join(' · ')}</p>
}

function Within({ ids, watched, inside }: { ids: readonly number[]; watched: WatchedSession; inside: NestedRows }) {
  return <ol class="bare rows within">{ids.map((id) => <li key={id} id={`r${id}`} data-row={id}><RowView id={id} watched={watched} inside={inside} /></li>)}</ol>
}

function Counts({ row }: { row: ToolRowData }) {
  const added = row.diffs.reduce((sum, diff) => sum + diff.added, 0)
  const removed = row.diffs.reduce((sum, diff) => sum + diff.removed, 0)
  return <span class="counts"><span class="plus">+{added}</span> <span class="minus">−{removed}</span></span>
}

function StateMark({ state }: { state: ToolRowData['state'] }) {
  if (state === 'running') return <span class="spinner" role="img" aria-label="Running" />
  if (state === 'done') return <span class="off-screen">Done</span>
  return <><Icon name="cross" size={15} />{STATES[state] ?? state}</>
}

function Elapsed({ row }: { row: ToolRowData }) {
  if (row.elapsedMs !== null) return row.elapsedMs >= 100 ? <span>{duration(row.elapsedMs)}</span> : null
  if (row.state !== 'running') return null
  const ms = currentTime.value + clockSkew.value - row.at
  return ms >= 2_000 ? <span>{duration(ms)}</span> : null
}

/** The command's own text, where it is all of the input. */
function commandOf(given: string): string | null {
  try {
    const input = JSON.parse(given) as Record<string, unknown>
    return typeof input.command === 'string' && Object.keys(input).length === 1 ? input.command : null
  } catch {
    return null
  }
}
