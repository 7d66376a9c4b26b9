// The pieces that settings are made of: a section, a line with a control, a choice of several.

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { toastOnError } from '../lib/toast'

export function Section({ id, title, children }: { id: string; title: string; children: ComponentChildren }) {
  return (
    <section class="settings-section" id={`settings-${id}`} aria-labelledby={`title-${id}`}>
      <h2 id={`title-${id}`} tabIndex={-1}>{title}</h2>
      {children}
    </section>
  )
}

export function Entry({ title, note, children }: { title: ComponentChildren; note?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="settings-entry">
      <div class="settings-words">
        <div class="settings-title">{title}</div>
        {note && <div class="settings-note">{note}</div>}
      </div>
      {children && <div class="settings-control">{children}</div>}
    </div>
  )
}

interface ChoiceProps<T extends string> {
  name: string
  title: string
  note?: string
  value: T
  options: readonly (readonly [value: T, word: string])[]
  onChange: (value: T) => void
}

/** A few choices beside each other: radio buttons, so that arrow keys and readers know what it is. */
export function Choice<T extends string>({ name, title, note, value, options, onChange }: ChoiceProps<T>) {
  return (
    <fieldset class="settings-entry settings-choice">
      <legend class="settings-words">
        <span class="settings-title">{title}</span>
        {note && <span class="settings-note">{note}</span>}
      </legend>
      <div class="segments">
        {options.map(([option, word]) => (
          <label key={option}>
            <input type="radio" name={name} value={option} checked={option === value} onChange={() => onChange(option)} />
            <span>{word}</span>
          </label>
        ))}
      </div>
    </fieldset>
  )
}

interface ActionProps {
  word: string
  run: () => Promise<unknown>
  /** Asked before it is done, for what cannot be taken back. */
  sure?: string
  kind?: 'plain' | 'main' | 'grave'
  disabled?: boolean
}

/** A button whose work takes a while, and which says so; what goes wrong is said at the edge of the page. */
export function Action({ word, run, sure, kind = 'plain', disabled = false }: ActionProps) {
  const [asking, setAsking] = useState(false)
  const [working, setWorking] = useState(false)
  const go = async () => {
    setAsking(false)
    setWorking(true)
    await toastOnError(run())
    setWorking(false)
  }
  if (asking) {
    return (
      <span class="settings-sure" role="group" aria-label={sure}>
        <span>{sure}</span>
        <button type="button" class="button-grave" onClick={() => void go()}>{word}</button>
        <button type="button" onClick={() => setAsking(false)}>Cancel</button>
      </span>
    )
  }
  return (
    <button type="button" class={`button-${kind}`} disabled={disabled || working} aria-busy={working} onClick={() => (sure ? setAsking(true) : void go())}>
      {working ? `${word}…` : word}
    </button>
  )
}

/** A command for a terminal. */
export function Command({ text }: { text: string }) {
  return <code class="settings-command">{text}</code>
}

/** Goes to a section by its name. Gives whether it is there. */
export function scrollToSection(part: string): boolean {
  const title = document.getElementById(`title-${part}`)
  title?.scrollIntoView({ block: 'start' })
  title?.focus({ preventScroll: true })
  return title !== null
}

/** So long what comes late may push a section away from where somebody was taken. */
const LATE_MS = 2_000

/** Stays at a section while those above it still fill, until somebody moves by themselves. */
export function scrollToSectionWhileLoading(part: string): () => void {
  scrollToSection(part)
  const box = document.getElementById('main')
  if (!box || typeof ResizeObserver === 'undefined') return () => {}
  const watching = new ResizeObserver(() => scrollToSection(part))
  const stop = new AbortController()
  const end = () => {
    watching.disconnect()
    stop.abort()
  }
  watching.observe(box)
  for (const moved of ['wheel', 'pointerdown', 'touchstart', 'keydown']) addEventListener(moved, end, { signal: stop.signal })
  const timer = setTimeout(end, LATE_MS)
  return () => {
    clearTimeout(timer)
    end()
  }
}
