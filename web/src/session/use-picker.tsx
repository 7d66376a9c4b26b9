// The composer's side of picking a command or a file: where the cursor is, what is offered for it, and
// which keys go to the list.

import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { SlashCommand } from '../wire'
import { setDraft } from '../lib/draft'
import { type PickerChoice, Picker, triggerAt, useChoices } from './picker'

export interface PickerState {
  list: ComponentChildren
  /** What screen readers are told of the list, on the text. */
  described: Record<string, string>
  typed(cursor: number): void
  moved(cursor: number): void
  /** Puts a `/` or an `@` where it asks for the list. */
  begin(mark: '/' | '@'): void
  /** Gives whether the key was for the list. */
  key(event: KeyboardEvent): boolean
}

export function usePicker(box: { current: HTMLTextAreaElement | null }, draftOf: string, text: string, commands: readonly SlashCommand[], session: string | null): PickerState {
  const [cursor, setCursor] = useState(0)
  const [at, setAt] = useState(0)
  // The place whose list was closed with Escape; typing opens it again.
  const [left, setLeft] = useState('')
  const trigger = triggerAt(text, cursor)
  const here = trigger ? `${trigger.kind} ${trigger.from}` : ''
  const choices = useChoices(here !== left ? trigger : null, commands, session)
  useEffect(() => setAt(0), [trigger?.word, trigger?.kind])
  const selected = Math.min(at, choices.length - 1)
  const write = (value: string, end: number) => {
    setDraft(draftOf, value)
    requestAnimationFrame(() => {
      box.current?.focus()
      box.current?.setSelectionRange(end, end)
      setCursor(end)
    })
  }
  const pick = (choice: PickerChoice) => {
    if (trigger) write(text.slice(0, trigger.from) + choice.text + text.slice(trigger.to), trigger.from + choice.text.length)
  }
  return {
    list: choices.length > 0 && <Picker label={trigger?.kind === 'file' ? 'Files' : 'Commands'} choices={choices} at={selected} onPick={pick} />,
    described: choices.length > 0 ? { 'aria-controls': 'picker', 'aria-activedescendant': `pick-${selected}` } : {},
    typed: (place) => { setCursor(place); setLeft('') },
    moved: setCursor,
    begin: (mark) => {
      setLeft('')
      if (mark === '/') return write(`/${text.replace(/^\//, '')}`, 1)
      const value = text === '' || /\s$/.test(text) ? `${text}@` : `${text} @`
      write(value, value.length)
    },
    key: (event) => choices.length > 0 && keyIn(event, choices, selected, { setAt, pick, leave: () => setLeft(here) }),
  }
}

interface Moves {
  setAt(at: number): void
  pick(choice: PickerChoice): void
  leave(): void
}

function keyIn(event: KeyboardEvent, choices: PickerChoice[], at: number, moves: Moves): boolean {
  const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
  const choice = choices[at]
  if (step !== 0) moves.setAt((at + step + choices.length) % choices.length)
  else if ((event.key === 'Enter' || event.key === 'Tab') && !event.shiftKey && choice) moves.pick(choice)
  else if (event.key === 'Escape') moves.leave()
  else return false
  event.preventDefault()
  event.stopPropagation()
  return true
}
