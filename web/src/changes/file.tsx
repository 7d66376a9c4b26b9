// The review of one file: its hunks, each with what can be done about it and what was.

import type { Signal } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import { appendDraft } from '../lib/draft'
import { several } from '../lib/words'
import type { Hunk } from '../wire'
import type { Desk } from './desk'
import { Diff, DiffTitle } from './diff'
import { hunkElementId, type Current } from './keys'
import { isSame, remark, type Mark, type MarkedFile } from './review'
import { mayDecide } from './rights'

interface FileReviewProps {
  desk: Desk
  file: MarkedFile
  /** Where the keys are, if they are used here. */
  current: Signal<Current | null> | null
  split: boolean
  /** Without the file's name: whoever shows it has said it. */
  bare?: boolean
}

export function FileReview({ desk, file, current, split, bare = false }: FileReviewProps) {
  const [remarking, setRemarking] = useState<Hunk | null>(null)
  const at = current?.value ?? null
  const isCurrent = (hunk: Hunk) => at !== null && at.path === file.diff.path && isSame(at.hunk, hunk)
  const isRemarked = (hunk: Hunk) => (remarking !== null && isSame(remarking, hunk)) || (isCurrent(hunk) && at!.remarking)
  const markOf = (hunk: Hunk): Mark => file.hunks.find((one) => isSame(one.hunk, hunk))?.mark ?? 'open'
  const done = () => {
    setRemarking(null)
    if (current?.value) current.value = { ...current.value, remarking: false }
  }
  return (
    <>
      <div class={`file-head${bare ? ' file-head-bare' : ''}`}>
        {!bare && <DiffTitle diff={{ ...file.diff, path: file.name }} />}
        <FileButtons desk={desk} file={file} />
      </div>
      <Diff
        compact
        diff={file.diff}
        split={split}
        frame={(hunk) => ({ id: bare ? undefined : hunkElementId(file.diff.path, hunk), class: `hunk-${markOf(hunk)}${isCurrent(hunk) ? ' hunk-current' : ''}` })}
        folded={(hunk) => markOf(hunk) === 'kept' || markOf(hunk) === 'undone'}
        head={(hunk) => <HunkButtons desk={desk} path={file.diff.path} hunk={hunk} mark={markOf(hunk)} onRemark={() => setRemarking(hunk)} />}
        foot={(hunk) => isRemarked(hunk) && <Remark desk={desk} path={file.name} hunk={hunk} onDone={done} />}
      />
      {file.diff.more > 0 && <p class="diff-note">{several(file.diff.more, 'line')} of this file not shown, because too much has changed. Check the file on the computer before you keep it.</p>}
    </>
  )
}

/** What is decided about the whole file. To undo all of it is asked twice: it may be many hunks. */
function FileButtons({ desk, file }: { desk: Desk; file: MarkedFile }) {
  const [sure, setSure] = useState(false)
  const path = file.diff.path
  if (file.mark !== 'open') return <MarkWord mark={file.mark} busy={desk.busy.value} />
  if (!mayDecide()) return null
  if (sure) {
    return (
      <div class="file-buttons" role="group" aria-label={`Undo all of ${file.name}?`}>
        <span class="file-sure">Undo the whole file?</span>
        <button type="button" class="button-undo" onClick={() => { setSure(false); void desk.revert(path, null) }}>Undo file</button>
        <button type="button" onClick={() => setSure(false)}>Cancel</button>
      </div>
    )
  }
  return (
    <div class="file-buttons">
      <button type="button" onClick={() => setSure(true)}>Undo file</button>
      <button type="button" class="button-keep" onClick={() => void desk.keep(path, null)}>Keep file</button>
    </div>
  )
}

interface HunkButtonsProps {
  desk: Desk
  path: string
  hunk: Hunk
  mark: Mark
  onRemark: () => void
}

function HunkButtons({ desk, path, hunk, mark, onRemark }: HunkButtonsProps) {
  if (mark !== 'open') return <MarkWord mark={mark} busy={desk.busy.value} />
  if (!mayDecide()) return null
  return (
    <span class="hunk-buttons">
      <button type="button" title="Comment on this in the next prompt (M)" onClick={onRemark}>Comment</button>
      <button type="button" title={desk.busy.value ? 'Undo when this turn ends (U)' : 'Undo this change (U)'} onClick={() => void desk.revert(path, hunk)}>Undo</button>
      <button type="button" class="button-keep" title="Keep this change (K)" onClick={() => void desk.keep(path, hunk)}>Keep</button>
    </span>
  )
}

function MarkWord({ mark, busy }: { mark: Mark | 'mixed'; busy: boolean }) {
  const words: Record<Mark | 'mixed', string> = {
    open: '',
    keeping: 'Keeping…',
    kept: 'Kept',
    undoing: busy ? 'Will be undone when this turn ends' : 'Undoing…',
    undone: 'Undone',
    mixed: 'Reviewed',
  }
  return <span class={`file-mark file-mark-${mark}`}>{words[mark]}</span>
}

/** A remark goes into the draft of the next prompt, so that several go to the agent together. */
function Remark({ desk, path, hunk, onDone }: { desk: Desk; path: string; hunk: Hunk; onDone: () => void }) {
  const [text, setText] = useState('')
  const area = useRef<HTMLTextAreaElement>(null)
  useEffect(() => area.current?.focus(), [])
  const add = () => {
    if (text.trim() === '') return
    appendDraft(desk.session, remark(path, hunk, text))
    desk.word.value = { tone: 'info', text: 'Added to the draft of your next prompt.' }
    onDone()
  }
  const pressed = (event: KeyboardEvent) => {
    if (event.key === 'Escape') onDone()
    else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) add()
  }
  return (
    <form class="remark" onSubmit={(event) => { event.preventDefault(); add() }}>
      <label>
        <span>Comment for the next prompt</span>
        <textarea ref={area} rows={3} value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={pressed} />
      </label>
      <div class="remark-buttons">
        <button type="button" onClick={onDone}>Cancel</button>
        <button type="submit" class="button-keep" disabled={text.trim() === ''}>Add to next prompt</button>
      </div>
    </form>
  )
}
