// Text of agents and commands: Markdown, terminal output, plain.

import { useLayoutEffect, useRef } from 'preact/hooks'
import { type Line, parseAnsi } from '../lib/ansi'
import { colourWhenSeen } from '../lib/highlight'
import { MarkdownView } from '../lib/markdown'

/** `whole` says that no more text will come. */
export function Markdown({ text, whole }: { text: string; whole: boolean }) {
  const host = useRef<HTMLDivElement>(null)
  const view = useRef<MarkdownView | null>(null)
  useLayoutEffect(() => {
    if (!host.current) return
    view.current ??= new MarkdownView(host.current, { settled: colourWhenSeen })
    view.current.update(text, whole)
  }, [text, whole])
  return <div class="markdown" ref={host} />
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
        : <span class={piece.classes} style={inks(piece.ink, piece.ground)}>{piece.text}</span>)}
      {'\n'}
    </>
  )
}

/** Set through the object model, which the policy against inline styles allows. */
function inks(ink: string | null, ground: string | null): Record<string, string> | undefined {
  if (!ink && !ground) return undefined
  return { ...(ink && { color: ink }), ...(ground && { 'background-color': ground }) }
}
