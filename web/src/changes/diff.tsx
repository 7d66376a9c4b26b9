// A file's change, painted: one column, or before and after side by side.
//
// Part of the first load, because permissions and tool calls show what would change; so it is small, and what
// a review adds (buttons, marks, comments) comes in through `head` and `foot`. Numbers and signs are painted
// by the style sheet from attributes: copied code is code, and a line costs two nodes.

import type { ComponentChildren } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { wrapLines } from '../lib/preferences'
import type { Diff as DiffData, Hunk } from '../wire'
import { numberLines, pageOfDiff, PAGE_LINES, pairLines, splitHidden, type DiffLine, type LineKind } from './diff-lines'
import './diff.css'

export interface DiffProps {
  diff: DiffData
  /** Before and after side by side. */
  split?: boolean
  /** Without the file's name: whoever shows it has said it. They also say what the server left out. */
  compact?: boolean
  /** What else stands in a hunk's head, and below it. */
  head?: (hunk: Hunk) => ComponentChildren
  foot?: (hunk: Hunk) => ComponentChildren
  /** Attributes of a hunk's frame: how a review finds it, and marks it. */
  frame?: (hunk: Hunk) => { id?: string; class?: string }
  /** A hunk that is settled needs no lines. */
  folded?: (hunk: Hunk) => boolean
}

export function Diff({ diff, split: wanted = false, compact = false, head, foot, frame, folded }: DiffProps) {
  // Side by side there is no room to scroll.
  const wrap = wanted || wrapLines.value
  // A file that is all new, or all gone, has only one side.
  const split = wanted && diff.added > 0 && diff.removed > 0
  const [limit, setLimit] = useState(PAGE_LINES)
  const { shown, left } = useMemo(() => pageOfDiff(diff, limit), [diff, limit])
  return (
    <div class={`diff${split ? ' diff-split' : ''}${wrap ? ' diff-wrap' : ''}`}>
      {!compact && <DiffTitle diff={diff} />}
      {diff.status === 'opaque' && <p class="diff-note">This file is not text, or too large to show.</p>}
      {shown.map(({ hunk, lines }) => {
        const own = frame?.(hunk)
        return (
          <div key={hunkKey(hunk)} role="group" id={own?.id} class={`hunk ${own?.class ?? ''}`} tabIndex={own ? -1 : undefined} aria-label={hunkName(hunk)}>
            {(head || shown.length > 1) && (
              <header class="hunk-head">
                <span class="hunk-place">{hunkName(hunk)}</span>
                {head?.(hunk)}
              </header>
            )}
            {!folded?.(hunk) && <Lines hunk={hunk} count={lines} split={split} scrolls={!wrap} />}
            {foot?.(hunk)}
          </div>
        )
      })}
      {left > 0 && (
        <button type="button" class="diff-more" onClick={() => setLimit(limit + PAGE_LINES)}>
          Show {Math.min(left, PAGE_LINES)} more of {left} lines
        </button>
      )}
    </div>
  )
}

/** A file's name, and how much of it changed. The name is never cut: its end says which file it is. */
export function DiffTitle({ diff }: { diff: DiffData }) {
  return (
    <div class="diff-title">
      <span class="diff-path"><Text text={diff.path} /></span>
      <Counts diff={diff} />
    </div>
  )
}

export function Counts({ diff }: { diff: DiffData }) {
  const word = { new: 'new', gone: 'deleted', changed: '', opaque: 'not shown' }[diff.status]
  return (
    <span class="diff-counts">
      {word && <span class="diff-status">{word}</span>}
      {diff.added > 0 && <span class="diff-added" title={plural(diff.added, 'line added', 'lines added')}>+{diff.added}</span>}
      {diff.removed > 0 && <span class="diff-removed" title={plural(diff.removed, 'line removed', 'lines removed')}>−{diff.removed}</span>}
    </span>
  )
}

export function hunkKey(hunk: Hunk): string {
  return hunk.id ?? `${hunk.old}.${hunk.new}`
}

function hunkName(hunk: Hunk): string {
  const after = hunk.lines.filter((line) => !line.startsWith('-')).length
  if (after === 0) return `Removed ${span(hunk.old, hunk.lines.length)}`
  return span(hunk.new, after).replace('l', 'L')
}

function span(first: number, count: number): string {
  return count === 1 ? `line ${first}` : `lines ${first}–${first + count - 1}`
}

function Lines({ hunk, count, split, scrolls }: { hunk: Hunk; count: number; split: boolean; scrolls: boolean }) {
  const lines = useMemo(() => numberLines(hunk, count), [hunk, count])
  const digits = String(Math.max(hunk.old, hunk.new) + hunk.lines.length).length
  const style = { '--digits': `${digits}ch` }
  if (split) {
    return (
      <div class="hunk-lines" style={style}>
        {pairLines(lines).map(({ left, right }, at) => (
          <div class="diff-pair" key={at}>
            <Side line={left} side="old" />
            <Side line={right} side="new" />
          </div>
        ))}
      </div>
    )
  }
  return (
    // Who has no mouse scrolls a long line with the arrow keys, and so has to be able to get there.
    <div class="hunk-scroll" tabIndex={scrolls ? 0 : undefined} role={scrolls ? 'group' : undefined} aria-label={scrolls ? `${hunkName(hunk)}, text` : undefined}>
      <div class="hunk-lines" style={style}>
        {lines.map((line, at) => <OneLine key={at} line={line} numbers={[line.old, line.new]} />)}
      </div>
    </div>
  )
}

function Side({ line, side }: { line: DiffLine | undefined; side: 'old' | 'new' }) {
  if (!line) return <div class="diff-line diff-none" />
  return <OneLine line={line} numbers={[line[side]]} />
}

const TAGS: Record<LineKind, 'div' | 'del' | 'ins'> = { same: 'div', gone: 'del', new: 'ins' }

function OneLine({ line, numbers }: { line: DiffLine; numbers: (number | undefined)[] }) {
  const Tag = TAGS[line.kind]
  return (
    <Tag class={`diff-line diff-${line.kind}`} data-a={numbers[0] ?? ''} data-b={numbers.length > 1 ? (numbers[1] ?? '') : undefined}>
      <code>
        {line.pieces
          ? line.pieces.map((piece) => (piece.changed ? <mark><Text text={piece.text} /></mark> : <Text text={piece.text} />))
          : <Text text={line.text} />}
      </code>
    </Tag>
  )
}

function Text({ text }: { text: string }) {
  return <>{splitHidden(text).map((part) => ('text' in part ? part.text : <span class="diff-hidden" title="invisible character">{part.hidden}</span>))}</>
}

function plural(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`
}
