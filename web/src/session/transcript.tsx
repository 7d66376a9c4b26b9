// The rows of a session, as somebody reads them.

import { useSignalEffect } from '@preact/signals'
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import { aroundFlush } from '../lib/flush'
import { awayFrom } from '../lib/hub'
import { place } from '../lib/router'
import { lockOf } from '../lib/sealed'
import type { Watched } from '../lib/session'
import { copy, toast, tried } from '../lib/toast'
import { several } from '../lib/words'
import { Icon } from '../ui/icons'
import type { Block } from './layout'
import { openedByHand } from './opened'
import { Pending } from './pending'
import { Reader } from './reader'
import { type Inside, RowView } from './row'
import { Window } from './window'

/** Elements of the transcript; with its texts the page stays below 6,000 nodes. */
const ELEMENTS_MAX = 1_800
/** Counting them costs a walk over all: once in so many flushes is enough. */
const COUNT_EVERY = 20
const PAGES_TO_A_LINK = 30

export function Transcript({ watched }: { watched: Watched }) {
  const scroller = useRef<HTMLDivElement>(null)
  const list = useRef<HTMLOListElement>(null)
  const window = useMemo(() => new Window(watched), [watched])
  const reader = useReader(scroller, list, window)
  useLinkedRow(watched, window, reader, list)
  const { blocks } = window.layout.value
  // What this page has let go of scrolling comes back by itself; what it never had, the machine has.
  const cutOff = awayFrom(watched.session) !== undefined && watched.rows.ids.value[0] === blocks[0]?.id
  return (
    <div class="transcript-frame">
      <div class="transcript" ref={scroller} onScroll={() => { reader.current?.moved(); if (!reader.current?.following.peek()) window.hold() }}
        onClick={copyCode} tabIndex={0} role="log" aria-live="off" aria-label="Conversation" id="transcript">
        <div class="column">
          {window.before.value
            ? cutOff
              ? <p class="soft earlier-away">Earlier entries are on the machine, which is offline.</p>
              : <button type="button" class="plain earlier" disabled={window.loading.value} onClick={() => void tried(window.earlier())}>{window.loading.value ? 'Loading…' : 'Load earlier entries'}</button>
            : watched.fresh.value && blocks.length === 0 && <p class="empty">Nothing here yet. Write what the agent should do.</p>}
          {!watched.fresh.value && blocks.length === 0 && !watched.over.value && lockOf(watched.session) === null && <p class="empty" role="status">Loading the conversation…</p>}
          <ol class="bare rows" ref={list}>
            {blocks.map((block) => <BlockView key={`${block.is}${block.id}`} block={block} watched={watched} inside={window.inside} />)}
          </ol>
          {window.after.value && <button type="button" class="plain earlier" onClick={() => window.later()}>Load later entries</button>}
          <Pending watched={watched} />
        </div>
      </div>
      <Pill reader={reader.current} onPress={() => { window.toEnd(); queueMicrotask(() => reader.current?.follow()) }} beyond={window.after.value} />
    </div>
  )
}

function Pill({ reader, onPress, beyond }: { reader: Reader | null; onPress: () => void; beyond: boolean }) {
  if (!reader || reader.following.value && !beyond) return null
  const words = reader.unseen.value || beyond ? 'New output' : 'Jump to the end'
  return <button type="button" class={`pill ${words === 'New output' ? 'fresh' : ''}`} onClick={onPress}><Icon name="down" size={16} />{words}</button>
}

interface BlockProps {
  block: Block
  watched: Watched
  inside: Inside
}

function BlockView({ block, watched, inside }: BlockProps) {
  if (block.is === 'row') return <li id={`r${block.id}`} data-row={block.id}><RowView id={block.id} watched={watched} inside={inside} /></li>
  const opened = openedByHand(watched.session, `group ${block.id}`)
  const open = opened.value ?? false
  const parts = [several(block.actions, 'action'), block.files > 0 && several(block.files, 'file'), block.failed > 0 && `${block.failed} failed`]
  return (
    <li id={`r${block.id}`} data-row={block.id} class="group">
      <button type="button" class="fold" aria-expanded={open} onClick={() => { opened.value = !open }}>
        <Icon name="right" size={16} /><span>{parts.filter(Boolean).join(', ')}</span>
      </button>
      {open && <ol class="bare rows inner">{block.ids.map((id) => <li key={id} id={`r${id}`} data-row={id}><RowView id={id} watched={watched} inside={inside} /></li>)}</ol>}
    </li>
  )
}

function useReader(scroller: { current: HTMLElement | null }, list: { current: HTMLElement | null }, window: Window) {
  const reader = useRef<Reader | null>(null)
  if (reader.current === null && scroller.current && list.current) reader.current = new Reader(scroller.current, list.current)
  useLayoutEffect(() => {
    if (!scroller.current || !list.current) return
    const mine = reader.current ?? new Reader(scroller.current, list.current)
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
function useLinkedRow(watched: Watched, window: Window, reader: { current: Reader | null }, list: { current: HTMLElement | null }): void {
  const done = useRef<number | null>(null)
  useSignalEffect(() => {
    const here = place.value
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
  if (button && code != null) void copy(code)
}
