// The review of one file: its hunks, each with what can be done about it and what was.

import type { Signal } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import { appendDraft } from '../lib/draft'
import { pluralize } from '../lib/format'
import type { Hunk } from '../wire'
import type { ChangeReview } from './change-review'
import { Diff, DiffTitle } from './diff'
import { hunkElementId, type CurrentHunk } from './review-keys'
import { isSameHunk, commentLine, type HunkMark, type MarkedFile } from './decisions'
import { mayReview } from './review-rights'

interface FileReviewProps {
  review: ChangeReview
  file: MarkedFile
  /** Where the keys are, if they are used here. */
  current: Signal<CurrentHunk | null> | null
  split: boolean
  /** Without the file's name: whoever shows it has said it. */
  bare?: boolean
}

export function FileReview({ review, file, current, split, bare = false }: FileReviewProps) {
  const [commenting, setCommenting] = useState<Hunk | null>(null)
  const at = current?.value ?? null
  const isCurrent = (hunk: Hunk) => at !== null && at.path === file.diff.path && isSameHunk(at.hunk, hunk)
  const hasComment = (hunk: Hunk) => (commenting !== null && isSameHunk(commenting, hunk)) || (isCurrent(hunk) && at!.commenting)
  const markOf = (hunk: Hunk): HunkMark => file.hunks.find((one) => isSameHunk(one.hunk, hunk))?.mark ?? 'open'
  const done = () => {
    setCommenting(null)
    if (current?.value) current.value = { ...current.value, commenting: false }
  }
  return (
    <>
      <div class={`file-head${bare ? ' file-head-bare' : ''}`}>
        {!bare && <DiffTitle diff={{ ...file.diff, path: file.name }} />}
        <FileButtons review={review} file={file} />
      </div>
      <Diff
        compact
        diff={file.diff}
        split={split}
        frame={(hunk) => ({ id: bare ? undefined : hunkElementId(file.diff.path, hunk), class: `hunk-${markOf(hunk)}${isCurrent(hunk) ? ' hunk-current' : ''}` })}
        folded={(hunk) => markOf(hunk) === 'kept' || markOf(hunk) === 'undone'}
        head={(hunk) => <HunkButtons review={review} path={file.diff.path} hunk={hunk} mark={markOf(hunk)} onComment={() => setCommenting(hunk)} />}
        foot={(hunk) => hasComment(hunk) && <CommentForm review={review} path={file.name} hunk={hunk} onDone={done} />}
      />
      {file.diff.more > 0 && <p class="diff-note">{pluralize(file.diff.more, 'line')} of this file not shown, because too much has changed. Check the file on the computer before you keep it.</p>}
    </>
  )
}

/** What is decided about the whole file. To undo all of it is asked twice: it may be many hunks. */
function FileButtons({ review, file }: { review: ChangeReview; file: MarkedFile }) {
  const [sure, setSure] = useState(false)
  const path = file.diff.path
  if (file.mark !== 'open') return <MarkWord mark={file.mark} busy={review.busy.value} />
  if (!mayReview()) return null
  if (sure) {
    return (
      <div class="file-buttons" role="group" aria-label={`Undo all of ${file.name}?`}>
        <span class="file-sure">Undo the whole file?</span>
        <button type="button" class="button-undo" onClick={() => { setSure(false); void review.revert(path, null) }}>Undo file</button>
        <button type="button" onClick={() => setSure(false)}>Cancel</button>
      </div>
    )
  }
  return (
    <div class="file-buttons">
      <button type="button" onClick={() => setSure(true)}>Undo file</button>
      <button type="button" class="button-keep" onClick={() => void review.keep(path, null)}>Keep file</button>
    </div>
  )
}

interface HunkButtonsProps {
  review: ChangeReview
  path: string
  hunk: Hunk
  mark: HunkMark
  onComment: () => void
}

function HunkButtons({ review, path, hunk, mark, onComment }: HunkButtonsProps) {
  if (mark !== 'open') return <MarkWord mark={mark} busy={review.busy.value} />
  if (!mayReview()) return null
  return (
    <span class="hunk-buttons">
      <button type="button" title="Comment on this in the next prompt (M)" onClick={onComment}>Comment</button>
      <button type="button" title={review.busy.value ? 'Undo when this turn ends (U)' : 'Undo this change (U)'} onClick={() => void review.revert(path, hunk)}>Undo</button>
      <button type="button" class="button-keep" title="Keep this change (K)" onClick={() => void review.keep(path, hunk)}>Keep</button>
    </span>
  )
}

function MarkWord({ mark, busy }: { mark: HunkMark | 'mixed'; busy: boolean }) {
  const words: Record<HunkMark | 'mixed', string> = {
    open: '',
    keeping: 'Keeping…',
    kept: 'Kept',
    undoing: busy ? 'Will be undone when this turn ends' : 'Undoing…',
    undone: 'Undone',
    mixed: 'Reviewed',
  }
  return <span class={`file-mark file-mark-${mark}`}>{words[mark]}</span>
}

/** A comment goes into the draft of the next prompt, so that several go to the agent together. */
function CommentForm({ review, path, hunk, onDone }: { review: ChangeReview; path: string; hunk: Hunk; onDone: () => void }) {
  const [text, setText] = useState('')
  const area = useRef<HTMLTextAreaElement>(null)
  useEffect(() => area.current?.focus(), [])
  const add = () => {
    if (text.trim() === '') return
    appendDraft(review.session, commentLine(path, hunk, text))
    review.message.value = { tone: 'info', text: 'Added to the draft of your next prompt.' }
    onDone()
  }
  const pressed = (event: KeyboardEvent) => {
    if (event.key === 'Escape') onDone()
    else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) add()
  }
  return (
    <form class="comment" onSubmit={(event) => { event.preventDefault(); add() }}>
      <label>
        <span>Comment for the next prompt</span>
        <textarea ref={area} rows={3} value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={pressed} />
      </label>
      <div class="comment-buttons">
        <button type="button" onClick={onDone}>Cancel</button>
        <button type="submit" class="button-keep" disabled={text.trim() === ''}>Add to next prompt</button>
      </div>
    </form>
  )
}
