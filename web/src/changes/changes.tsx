// Everything that a session has changed and nobody has reviewed: a page of its own, and a panel beside the session.
//
// On a phone the page is a list of files, and a file fills the screen; where there is room the files stand
// beside the one that is read. The panel opens files in place. All three show the same review.

import { computed, effect } from '@preact/signals'
import { useEffect, useMemo, useRef } from 'preact/hooks'
import { splitDiffs, wrapLines } from '../lib/preferences'
import { sendRequest, connectionState } from '../lib/connection'
import { changesPath, sessionPath } from '../lib/router'
import { unwatch, watch, type WatchedSession } from '../lib/watched-session'
import { visible } from '../lib/format'
import { Icon } from '../ui/icons'
import { phone, twoSides } from '../ui/screen-size'
import { ChangeReview } from './change-review'
import { FileList } from './file-list'
import { FileReview } from './file-review'
import { useReviewKeys } from './review-keys'
import { mayReview } from './review-rights'
import { nextOpenHunk, type MarkedFile } from './decisions'
import './changes.css'

export interface ChangesProps {
  session: string
  path: string | null
  /** Beside the session instead of on its own. */
  panel?: boolean
}

export default function Changes({ session, path, panel = false }: ChangesProps) {
  const review = useReview(session)
  if (panel) {
    return (
      <div class="changes changes-panel">
        <ReviewMessages review={review} />
        <Panel review={review} />
      </div>
    )
  }
  const open = chosen(review.markedFiles.value, path)
  return (
    <div class={`changes changes-page${open ? ' changes-reading' : ''}`}>
      <Head review={review} isFile={phone.value && open !== null} />
      <ReviewMessages review={review} />
      <Page review={review} open={open} />
    </div>
  )
}

/** Watches the session for as long as its changes are shown, and keeps the list current. */
function useReview(session: string): ChangeReview {
  const review = useMemo(() => new ChangeReview(session, sendRequest), [session])
  useEffect(() => {
    const watched = watch(session)
    const endedTools = computed(() => countEndedTools(watched))
    const busy = computed(() => watched.state.value !== null && (watched.state.value.busy || watched.state.value.queue.length > 0))
    const folder = computed(() => watched.state.value?.folder ?? '')
    let first = true
    const stop = effect(() => {
      // Any of these can mean that a file is another one: a tool ended, a turn began or ended, somebody came back.
      void endedTools.value
      review.busy.value = busy.value
      review.folder.value = folder.value
      const live = connectionState.value.is === 'live'
      if (first) void review.load()
      else if (live) review.reloadSoon()
      first = false
    })
    return () => {
      stop()
      review.close()
      unwatch(watched)
    }
  }, [review, session])
  return review
}

/** Tools that change no files, whatever they do. */
const HARMLESS = new Set(['read', 'search', 'think', 'fetch', 'switchMode'])

/** How many tools have ended that may have changed a file. */
function countEndedTools({ rows }: WatchedSession): number {
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
function Head({ review, isFile }: { review: ChangeReview; isFile: boolean }) {
  const wide = twoSides.value
  const { reviewed, total } = review.progress.value
  return (
    <header class="changes-head">
      <a class="changes-back" href={isFile ? changesPath(review.session) : sessionPath(review.session)}>
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

function ReviewMessages({ review }: { review: ChangeReview }) {
  const word = review.message.value
  const undoing = review.decisions.value.some(({ mark }) => mark === 'undoing')
  return (
    <div class="changes-words" aria-live="polite">
      {word && (
        <p class={`changes-word changes-word-${word.tone}`}>
          <span>{word.text}</span>
          {word.tone === 'bad'
            ? <button type="button" onClick={() => { review.message.value = null; void review.load() }}>Reload</button>
            : <button type="button" onClick={() => (review.message.value = null)}>OK</button>}
        </p>
      )}
      {undoing && review.busy.value && <p class="changes-word">Changes are undone when this turn ends.</p>}
    </div>
  )
}

function Page({ review, open }: { review: ChangeReview; open: MarkedFile | null }) {
  const files = review.markedFiles.value
  const split = twoSides.value && splitDiffs.value
  // Where both fit there is always something to read, and it stays when its last hunk is decided.
  const last = useRef<string | null>(null)
  const usual = () => chosen(files, last.current) ?? files.find(({ mark }) => mark === 'open') ?? files[0] ?? null
  const shown = open ?? (phone.value ? null : usual())
  last.current = shown?.name ?? null
  const current = useReviewKeys(review, shown)
  if (review.files.value === null) return <p class="changes-empty" role="status">Loading…</p>
  if (files.length === 0) return <NoChanges review={review} />
  return (
    <main class="changes-body" id="main">
      <nav class="changes-files" aria-label="Changed files">
        <FileList files={files} open={shown} href={(file) => changesPath(review.session, file.name)} />
        <KeepAll review={review} />
      </nav>
      <div class="changes-file" key={shown?.diff.path}>
        {shown && <FileReview review={review} file={shown} current={current} split={split} />}
        {shown && <NextFile review={review} file={shown} />}
      </div>
    </main>
  )
}

function Panel({ review }: { review: ChangeReview }) {
  const files = review.markedFiles.value
  const { reviewed, total } = review.progress.value
  if (review.files.value === null) return <p class="changes-empty" role="status">Loading…</p>
  if (files.length === 0) return <NoChanges review={review} />
  return (
    <>
      <div class="changes-panel-head">
        <p class="changes-progress" role="status">{reviewed} of {total} reviewed</p>
        <a class="changes-link" href={changesPath(review.session)}>Open full page</a>
      </div>
      {files.map((file) => (
        <details class="changes-fold" key={file.diff.path} open={files.length <= 3}>
          <summary><FileList files={[file]} open={null} /></summary>
          <FileReview review={review} file={file} current={null} split={false} bare />
        </details>
      ))}
      <KeepAll review={review} />
    </>
  )
}

function NoChanges({ review }: { review: ChangeReview }) {
  return (
    <div class="changes-empty">
      <p>{review.busy.value ? 'No changes yet.' : 'No changes to review.'}</p>
      <p class="changes-soft">Files that the agent changes are listed here until you keep or undo the changes.</p>
    </div>
  )
}

function KeepAll({ review }: { review: ChangeReview }) {
  const { reviewed, total } = review.progress.value
  if (total - reviewed === 0) return <p class="changes-soft changes-all">All changes are reviewed.</p>
  if (!mayReview()) return null
  return <button type="button" class="changes-keep-all" onClick={() => void review.keepAll()}>Keep all ({total - reviewed})</button>
}

/** At the end of a file: on to the next one that is open, or back. */
function NextFile({ review, file }: { review: ChangeReview; file: MarkedFile }) {
  const last = file.hunks.at(-1)?.hunk ?? null
  const next = nextOpenHunk(review.markedFiles.value, file, last, 1)?.file
  if (!next) return <a class="changes-onward" href={sessionPath(review.session)}>All changes are reviewed. Back to the session</a>
  if (next.diff.path === file.diff.path) return null
  return <a class="changes-onward" href={changesPath(review.session, next.name)}>Next file: {visible(next.name)}</a>
}
