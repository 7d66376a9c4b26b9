// Text of agents and commands: Markdown, terminal output, plain.

import { signal } from '@preact/signals'
import { useLayoutEffect, useRef } from 'preact/hooks'
import { type Line, parseAnsi } from '../lib/ansi'
import { atFlush } from '../lib/flush'
import type { MarkdownView } from '../lib/markdown'

/** The parser is a third of the app, and the list needs none of it: it comes right after the rest. */
const parts = signal<typeof import('./markdown-bundle') | null>(null)
import('./markdown-bundle').then(
  (loaded) => atFlush(() => { parts.value = loaded }),
  // Without it, text is shown as it was written.
  () => {},
)

/** `whole` says that no more text will come. */
export function Markdown({ text, whole }: { text: string; whole: boolean }) {
  const host = useRef<HTMLDivElement>(null)
  const view = useRef<MarkdownView | null>(null)
  const loaded = parts.value
  useLayoutEffect(() => {
    if (!host.current || !loaded) return
    view.current ??= new loaded.MarkdownView(host.current, { settled: loaded.colourWhenSeen })
    view.current.update(text, whole)
  }, [text, whole, loaded])
  return loaded ? <div key="shown" class="markdown" ref={host} /> : <div key="plain" class="markdown unparsed">{text}</div>
}

/** Output of a command, its last lines if they are many. */
export function Output({ text, lines, label }: { text: string; lines: number; label: string }) {
  const all = parseAnsi(text)
  const shown = all.slice(-lines)
  return <pre class="output" tabIndex={0} aria-label={label}>{shown.map((line, place) => <OutputLine key={all.length - shown.length + place} line={line} />)}</pre>
}

function OutputLine({ line }: { line: Line }) {
  return (
    <>
      {line.map((piece) => piece.classes === '' && !piece.ink && !piece.ground
        ? piece.text
        : <span class={piece.ink && !piece.ground ? `${piece.classes} a-true` : piece.classes} style={inks(piece.ink, piece.ground)}>{piece.text}</span>)}
      {'\n'}
    </>
  )
}

/** Set through the object model, which the policy against inline styles allows. */
function inks(ink: string | null, ground: string | null): Record<string, string> | undefined {
  if (!ink && !ground) return undefined
  if (ink && !ground) return { '--ink': ink }
  return { ...(ink && { color: ink }), ...(ground && { 'background-color': ground }) }
}
