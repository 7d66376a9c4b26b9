// Everything that a session has changed and nobody has reviewed: a page of its own, and a panel beside the session.
//
// On a phone the page is a list of files, and a file fills the screen; where there is room the files stand
// beside the one that is read. The panel opens files in place. All three show the same desk.

import { computed, effect } from '@preact/signals'
import { useEffect, useMemo, useRef } from 'preact/hooks'
import { splitDiffs, wrapLines } from '../lib/choices'
import { ask, state } from '../lib/line'
import { changesPath, sessionPath } from '../lib/router'
import { letGo, watch, type Watched } from '../lib/session'
import { visible } from '../lib/words'
import { Icon } from '../ui/icons'
import { phone, twoSides } from '../ui/screen'
import { Desk } from './desk'
import { FileList } from './files'
import { FileReview } from './file'
import { useKeys } from './keys'
import { mayDecide } from './rights'
import { neighbour, type MarkedFile } from './review'
import './changes.css'

export interface ChangesProps {
  session: string
  path: string | null
  /** Beside the session instead of on its own. */
  panel?: boolean
}

export default function Changes({ session, path, panel = false }: ChangesProps) {
  const desk = useDesk(session)
  if (panel) {
    return (
      <div class="changes changes-panel">
        <Words desk={desk} />
        <Panel desk={desk} />
      </div>
    )
  }
  const open = chosen(desk.laid.value, path)
  return (
    <div class={`changes changes-page${open ? ' changes-reading' : ''}`}>
      <Head desk={desk} isFile={phone.value && open !== null} />
      <Words desk={desk} />
      <Page desk={desk} open={open} />
    </div>
  )
}

/** Watches the session for as long as its changes are shown, and keeps the list current. */
function useDesk(session: string): Desk {
  const desk = useMemo(() => new Desk(session, ask), [session])
  useEffect(() => {
    const watched = watch(session)
    const deeds = computed(() => deedsOf(watched))
    const busy = computed(() => watched.state.value !== null && (watched.state.value.busy || watched.state.value.queue.length > 0))
    const folder = computed(() => watched.state.value?.folder ?? '')
    let first = true
    const stop = effect(() => {
      // Any of these can mean that a file is another one: a tool ended, a turn began or ended, somebody came back.
      void deeds.value
      desk.busy.value = busy.value
      desk.folder.value = folder.value
      const live = state.value.is === 'live'
      if (first) void desk.load()
      else if (live) desk.stir()
      first = false
    })
    return () => {
      stop()
      desk.close()
      letGo(watched)
    }
  }, [desk, session])
  return desk
}

/** Tools that change no files, whatever they do. */
const HARMLESS = new Set(['read', 'search', 'think', 'fetch', 'switchMode'])

/** How many tools have ended that may have changed a file. */
function deedsOf({ rows }: Watched): number {
  void rows.shape.value
  return rows.ids.value.filter((id) => {
    const row = rows.get(id)?.peek()
    return row?.is === 'tool' && row.state !== 'running' && !HARMLESS.has(row.kind)
  }).length
}

/** The file of the address. One outside of the session's folder is named from the root there, without the slash. */
function chosen(files: MarkedFile[], name: string | null): MarkedFile | null {
  return files.find((file) => file.name === name || file.name === `/${name}`) ?? null
}

/** `isFile`: one file fills the screen, and the way back leads to the others. */
function Head({ desk, isFile }: { desk: Desk; isFile: boolean }) {
  const wide = twoSides.value
  const { reviewed, total } = desk.progress.value
  return (
    <header class="changes-head">
      <a class="changes-back" href={isFile ? changesPath(desk.session) : sessionPath(desk.session)}>
        <Icon name="back" />
        <span>{isFile ? 'Files' : 'Session'}</span>
      </a>
      <h1>Changes</h1>
      <p class="changes-progress" role="status">{total > 0 && `${reviewed} of ${total} reviewed`}</p>
      <div class="changes-tools">
        <Toggle label="Wrap" title="Wrap long lines" value={wrapLines.value} set={(value) => (wrapLines.value = value)} hidden={(wide && splitDiffs.value) || (phone.value && !isFile)} />
        {wide && <Toggle label="Split" title="Before and after side by side (S)" value={splitDiffs.value} set={(value) => (splitDiffs.value = value)} />}
      </div>
    </header>
  )
}

function Toggle({ label, title, value, set, hidden = false }: { label: string; title: string; value: boolean; set: (value: boolean) => void; hidden?: boolean }) {
  if (hidden) return null
  return <button type="button" class="changes-toggle" title={title} aria-pressed={value} onClick={() => set(!value)}>{label}</button>
}

function Words({ desk }: { desk: Desk }) {
  const word = desk.word.value
  const undoing = desk.decisions.value.some(({ mark }) => mark === 'undoing')
  return (
    <div class="changes-words" aria-live="polite">
      {word && (
        <p class={`changes-word changes-word-${word.tone}`}>
          <span>{word.text}</span>
          {word.tone === 'bad'
            ? <button type="button" onClick={() => { desk.word.value = null; void desk.load() }}>Reload</button>
            : <button type="button" onClick={() => (desk.word.value = null)}>OK</button>}
        </p>
      )}
      {undoing && desk.busy.value && <p class="changes-word">Changes are undone when this turn ends.</p>}
    </div>
  )
}

function Page({ desk, open }: { desk: Desk; open: MarkedFile | null }) {
  const files = desk.laid.value
  const split = twoSides.value && splitDiffs.value
  // Where both fit there is always something to read, and it stays when its last hunk is decided.
  const last = useRef<string | null>(null)
  const usual = () => chosen(files, last.current) ?? files.find(({ mark }) => mark === 'open') ?? files[0] ?? null
  const shown = open ?? (phone.value ? null : usual())
  last.current = shown?.name ?? null
  const current = useKeys(desk, shown)
  if (desk.files.value === null) return <p class="changes-empty" role="status">Loading…</p>
  if (files.length === 0) return <Nothing desk={desk} />
  return (
    <main class="changes-body" id="main">
      <nav class="changes-files" aria-label="Changed files">
        <FileList files={files} open={shown} href={(file) => changesPath(desk.session, file.name)} />
        <KeepAll desk={desk} />
      </nav>
      <div class="changes-file" key={shown?.diff.path}>
        {shown && <FileReview desk={desk} file={shown} current={current} split={split} />}
        {shown && <Onward desk={desk} file={shown} />}
      </div>
    </main>
  )
}

function Panel({ desk }: { desk: Desk }) {
  const files = desk.laid.value
  const { reviewed, total } = desk.progress.value
  if (desk.files.value === null) return <p class="changes-empty" role="status">Loading…</p>
  if (files.length === 0) return <Nothing desk={desk} />
  return (
    <>
      <div class="changes-panel-head">
        <p class="changes-progress" role="status">{reviewed} of {total} reviewed</p>
        <a class="changes-link" href={changesPath(desk.session)}>Open full page</a>
      </div>
      {files.map((file) => (
        <details class="changes-fold" key={file.diff.path} open={files.length <= 3}>
          <summary><FileList files={[file]} open={null} /></summary>
          <FileReview desk={desk} file={file} current={null} split={false} bare />
        </details>
      ))}
      <KeepAll desk={desk} />
    </>
  )
}

function Nothing({ desk }: { desk: Desk }) {
  return (
    <div class="changes-empty">
      <p>{desk.busy.value ? 'No changes yet.' : 'No changes to review.'}</p>
      <p class="changes-soft">Files that the agent changes are listed here until you keep or undo the changes.</p>
    </div>
  )
}

function KeepAll({ desk }: { desk: Desk }) {
  const { reviewed, total } = desk.progress.value
  if (total - reviewed === 0) return <p class="changes-soft changes-all">All changes are reviewed.</p>
  if (!mayDecide()) return null
  return <button type="button" class="changes-keep-all" onClick={() => void desk.keepAll()}>Keep all ({total - reviewed})</button>
}

/** At the end of a file: on to the next one that is open, or back. */
function Onward({ desk, file }: { desk: Desk; file: MarkedFile }) {
  const last = file.hunks.at(-1)?.hunk ?? null
  const next = neighbour(desk.laid.value, file, last, 1)?.file
  if (!next) return <a class="changes-onward" href={sessionPath(desk.session)}>All changes are reviewed. Back to the session</a>
  if (next.diff.path === file.diff.path) return null
  return <a class="changes-onward" href={changesPath(desk.session, next.name)}>Next file: {visible(next.name)}</a>
}
