// The rows of a session, as somebody reads them.

import { useSignalEffect } from '@preact/signals'
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import { aroundFlush } from '../lib/flush'
import { offlineMachineOf } from '../lib/hub-state'
import { route } from '../lib/router'
import { lockOf } from '../lib/sealed-connection'
import type { WatchedSession } from '../lib/watched-session'
import { copyText, toast, toastOnError } from '../lib/toast'
import { pluralize } from '../lib/format'
import { Icon } from '../ui/icons'
import type { Block } from './row-grouping'
import { foldStateOf } from './fold-state'
import { PendingPrompts } from './outbox-prompts'
import { ReadingPosition } from './reading-position'
import { type NestedRows, RowView } from './row-view'
import { RowWindow } from './row-window'

/** Elements of the transcript; with its texts the page stays below 6,000 nodes. */
const ELEMENTS_MAX = 1_800
/** Counting them costs a walk over all: once in so many flushes is enough. */
const COUNT_EVERY = 20
const PAGES_TO_A_LINK = 30

export function Transcript({ watched }: { watched: WatchedSession }) {
  const scroller = useRef<HTMLDivElement>(null)
  const list = useRef<HTMLOListElement>(null)
  const window = useMemo(() => new RowWindow(watched), [watched])
  const reader = useReader(scroller, list, window)
  useLinkedRow(watched, window, reader, list)
  const { blocks } = window.layout.value
  // What this page has let go of scrolling comes back by itself; what it never had, the machine has.
  const cutOff = offlineMachineOf(watched.session) !== undefined && watched.rows.ids.value[0] === blocks[0]?.id
  return (
    <div class="transcript-frame">
      <div class="transcript" ref={scroller} onScroll={() => { reader.current?.moved(); if (!reader.current?.following.peek()) window.hold() }}
        onClick={copyCode} tabIndex={0} role="log" aria-live="off" aria-label="Conversation" id="transcript">
        <div class="column">
          {window.before.value
            ? cutOff
              ? <p class="soft earlier-away">Earlier entries are on the machine, which is offline.</p>
              : <button type="button" class="plain earlier" disabled={window.loading.value} onClick={() => void toastOnError(window.earlier())}>{window.loading.value ? 'Loading…' : 'Load earlier entries'}</button>
            : watched.fresh.value && blocks.length === 0 && <p class="empty">Nothing here yet. Write what the agent should do.</p>}
          {!watched.fresh.value && blocks.length === 0 && !watched.endReason.value && lockOf(watched.session) === null && <p class="empty" role="status">Loading the conversation…</p>}
          <ol class="bare rows" ref={list}>
            {blocks.map((block) => <BlockView key={`${block.is}${block.id}`} block={block} watched={watched} inside={window.inside} />)}
          </ol>
          {window.after.value && <button type="button" class="plain earlier" onClick={() => window.later()}>Load later entries</button>}
          <PendingPrompts watched={watched} />
        </div>
      </div>
      <Pill reader={reader.current} onPress={() => { window.toEnd(); queueMicrotask(() => reader.current?.follow()) }} beyond={window.after.value} />
    </div>
  )
}

function Pill({ reader, onPress, beyond }: { reader: ReadingPosition | null; onPress: () => void; beyond: boolean }) {
  if (!reader || reader.following.value && !beyond) return null
  const words = reader.unseen.value || beyond ? 'New output' : 'Jump to the end'
  return <button type="button" class={`pill ${words === 'New output' ? 'fresh' : ''}`} onClick={onPress}><Icon name="down" size={16} />{words}</button>
}

interface BlockProps {
  block: Block
  watched: WatchedSession
  inside: NestedRows
}

function BlockView({ block, watched, inside }: BlockProps) {
  if (block.is === 'row') return <li id={`r${block.id}`} data-row={block.id}><RowView id={block.id} watched={watched} inside={inside} /></li>
  const opened = foldStateOf(watched.session, `group ${block.id}`)
  const open = opened.value ?? false
  const parts = [pluralize(block.actions, 'action'), block.files > 0 && pluralize(block.files, 'file'), block.failed > 0 && `${block.failed} failed`]
  return (
    <li id={`r${block.id}`} data-row={block.id} class="group">
      <button type="button" class="fold" aria-expanded={open} onClick={() => { opened.value = !open }}>
        <Icon name="right" size={16} /><span>{parts.filter(Boolean).join(', ')}</span>
      </button>
      {open && <ol class="bare rows inner">{block.ids.map((id) => <li key={id} id={`r${id}`} data-row={id}><RowView id={id} watched={watched} inside={inside} /></li>)}</ol>}
    </li>
  )
}

function useReader(scroller: { current: HTMLElement | null }, list: { current: HTMLElement | null }, window: RowWindow) {
  const reader = useRef<ReadingPosition | null>(null)
  if (reader.current === null && scroller.current && list.current) reader.current = new ReadingPosition(scroller.current, list.current)
  useLayoutEffect(() => {
    if (!scroller.current || !list.current) return
    const mine = reader.current ?? new ReadingPosition(scroller.current, list.current)
    reader.current = mine
    mine.toEnd()
    let flushes = 0
    const around = aroundFlush({
      before: () => mine.before(),
      after: () => {
        mine.after()
        if (!mine.following.peek()) return window.hold()
        flushes += 1
        const crowded = flushes % COUNT_EVERY === 0 && (list.current?.getElementsByTagName('*').length ?? 0) > ELEMENTS_MAX
        if (window.follow(crowded)) queueMicrotask(() => mine.toEnd())
      },
    })
    const resized = new ResizeObserver(() => { if (mine.following.peek()) mine.toEnd() })
    resized.observe(scroller.current)
    if (scroller.current.firstElementChild) resized.observe(scroller.current.firstElementChild)
    return () => {
      around()
      resized.disconnect()
    }
  }, [window])
  return reader
}

/** An address with a row opens there, however far back it is. */
function useLinkedRow(watched: WatchedSession, window: RowWindow, reader: { current: ReadingPosition | null }, list: { current: HTMLElement | null }): void {
  const done = useRef<number | null>(null)
  useSignalEffect(() => {
    const here = route.value
    const row = here.at === 'session' ? here.row : null
    if (row === null || !watched.fresh.value || done.current === row) return
    done.current = row
    void (async () => {
      const found = await window.reach(row, PAGES_TO_A_LINK).catch(() => false)
      requestAnimationFrame(() => {
        const node = list.current?.querySelector<HTMLElement>(`[data-row="${row}"]`)
        if (!found || !node) return toast('The linked entry was not found.')
        reader.current?.show(node)
        node.classList.add('linked')
      })
    })()
  })
  useEffect(() => { done.current = null }, [watched])
}

/** Copy buttons of code blocks are made by the Markdown view, which knows no components. */
function copyCode(event: MouseEvent): void {
  const button = (event.target as HTMLElement).closest('[data-copy]')
  const code = button?.parentElement?.nextElementSibling?.textContent
  if (button && code != null) void copyText(code)
}
