// What can follow a `/` or an `@` in the composer, as a list above it. The keys stay in the text; the
// composer passes those on that belong here.

import { useEffect, useRef, useState } from 'preact/hooks'
import type { SlashCommand } from '../wire'
import { sendRequest } from '../lib/connection'

const FIND_AFTER_MS = 120
const SHOWN_MAX = 50

export interface PickerChoice {
  /** What is put into the text. */
  text: string
  name: string
  about: string
}

/** The word under the cursor, if it asks for a list. */
export interface Trigger {
  kind: 'command' | 'file'
  word: string
  from: number
  to: number
}

export function triggerAt(text: string, cursor: number): Trigger | null {
  const before = text.slice(0, cursor)
  const command = /^\/(\S*)$/.exec(before)
  if (command) return { kind: 'command', word: command[1] ?? '', from: 0, to: cursor }
  const file = /(?:^|\s)@(\S*)$/.exec(before)
  if (file) return { kind: 'file', word: file[1] ?? '', from: cursor - (file[1]?.length ?? 0) - 1, to: cursor }
  return null
}

export function commandChoices(commands: readonly SlashCommand[], word: string): PickerChoice[] {
  const wanted = word.toLowerCase()
  const rank = (command: SlashCommand) => (command.name.toLowerCase().startsWith(wanted) ? 0 : 1)
  return commands
    .filter((command) => `${command.name} ${command.description}`.toLowerCase().includes(wanted))
    .sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name))
    .slice(0, SHOWN_MAX)
    .map((command) => ({ text: `/${command.name} `, name: `/${command.name}${command.hint ? ` ${command.hint}` : ''}`, about: command.description }))
}

/** The choices for a trigger; files are asked for when typing pauses. */
export function useChoices(trigger: Trigger | null, commands: readonly SlashCommand[], session: string | null): PickerChoice[] {
  const [files, setFiles] = useState<PickerChoice[]>([])
  const word = trigger?.kind === 'file' ? trigger.word : null
  useEffect(() => {
    if (word === null || session === null) return setFiles([])
    let dropped = false
    const timer = setTimeout(() => {
      sendRequest({ do: 'find', session, text: word }).then(
        (found) => { if (!dropped) setFiles(found.files.slice(0, SHOWN_MAX).map((file) => ({ text: `@${file.path} `, name: file.path, about: '' }))) },
        () => { if (!dropped) setFiles([]) },
      )
    }, FIND_AFTER_MS)
    return () => {
      dropped = true
      clearTimeout(timer)
    }
  }, [word, session])
  if (!trigger) return []
  return trigger.kind === 'command' ? commandChoices(commands, trigger.word) : files
}

interface PickerProps {
  label: string
  choices: PickerChoice[]
  at: number
  onPick: (choice: PickerChoice) => void
}

export function Picker({ label, choices, at, onPick }: PickerProps) {
  const list = useRef<HTMLUListElement>(null)
  useEffect(() => { list.current?.children[at]?.scrollIntoView({ block: 'nearest' }) }, [at])
  return (
    <ul class="bare picker" role="listbox" aria-label={label} id="picker" ref={list}>
      {choices.map((choice, place) => (
        // The text keeps the focus, so that the list can be left by typing on.
        <li key={choice.name} role="option" id={`pick-${place}`} aria-selected={place === at} onPointerDown={(event) => event.preventDefault()} onClick={() => onPick(choice)}>
          <span class="pick-name">{choice.name}</span>{choice.about && <span class="soft">{choice.about}</span>}
        </li>
      ))}
    </ul>
  )
}
