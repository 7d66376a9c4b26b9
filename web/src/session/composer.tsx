// Where somebody writes what is to be done. Independent of the conversation above it, so that typing is
// never slow because of what is shown.

import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Picture, SlashCommand } from '../wire'
import { sendKey } from '../lib/preferences'
import { draft, setDraft } from '../lib/draft'
import { toast } from '../lib/toast'
import { IconButton } from '../ui/icon-button'
import { Icon } from '../ui/icons'
import { phone, touch } from '../ui/screen-size'
import { usePicker } from './use-picker'
import { type ChosenPicture, revokePicture, PICTURES_MAX, readPictures } from './pictures'

const LINES_MAX = 6

interface ComposerProps {
  /** Whose draft it is; a new session has one too. */
  draftOf: string
  /** Where `@` looks for files. */
  session: string | null
  commands: readonly SlashCommand[]
  placeholder: string
  /** Gives whether it was taken; then the text goes. */
  onSend: (text: string, pictures: Picture[]) => boolean
  /** The button that stops, instead of the one that sends, while there is no text. */
  stop?: ComponentChildren
  chips: ComponentChildren
  busy: boolean
  sendLabel?: string
}

export function Composer({ draftOf, session, commands, placeholder, onSend, stop, chips, busy, sendLabel = 'Send' }: ComposerProps) {
  const box = useRef<HTMLTextAreaElement>(null)
  const text = draft(draftOf).value
  const { chosen, add, remove, clear } = usePictures()
  const picking = usePicker(box, draftOf, text, commands, session)
  useGrowing(box, text)
  const empty = text.trim() === '' && chosen.length === 0
  const send = () => {
    if (empty || !onSend(text.trim(), chosen.map((one) => one.picture))) return
    setDraft(draftOf, '')
    clear()
  }
  const keys = (event: KeyboardEvent) => {
    // Keys of an input method belong to it until it is done.
    if (event.isComposing || event.keyCode === 229 || picking.key(event)) return
    if (event.key !== 'Enter' || !sendsWith(event)) return
    event.preventDefault()
    send()
  }
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); send() }}
      onDragOver={(event) => { if (event.dataTransfer?.types.includes('Files')) event.preventDefault() }}
      onDrop={(event) => { if (event.dataTransfer?.files.length) { event.preventDefault(); void add(event.dataTransfer.files) } }}>
      {picking.list}
      <Thumbs chosen={chosen} onRemove={remove} />
      <textarea ref={box} id="composer" rows={1} value={text} placeholder={placeholder} aria-label="Message to the agent" enterkeyhint={touch.value ? 'enter' : 'send'} autocapitalize="sentences"
        aria-haspopup="listbox" aria-autocomplete="list" {...picking.described}
        onInput={(event) => { setDraft(draftOf, event.currentTarget.value); picking.typed(event.currentTarget.selectionStart) }}
        onSelect={(event) => picking.moved(event.currentTarget.selectionStart)} onKeyDown={keys}
        onPaste={(event) => { const files = event.clipboardData?.files; if (files?.length) { event.preventDefault(); void add(files) } }} />
      <div class="composer-bar">
        <div class="composer-chips">
          <Attach onFiles={add} />
          <IconButton label="Commands" icon="slash" size={18} onPress={() => picking.begin('/')} />
          {session !== null && <IconButton label="Mention a file" icon="at" size={18} onPress={() => picking.begin('@')} />}
          {chips}
        </div>
        {empty && stop ? stop : (
          // A touch must not take the focus from the text first: the keyboard would go and the button move away.
          <button type="submit" class="send" aria-label={busy ? 'Queue' : sendLabel} disabled={empty} onPointerDown={(event) => event.preventDefault()}>
            <Icon name="send" /><span class="send-word">{busy ? 'Queue' : sendLabel}</span>
          </button>
        )}
      </div>
    </form>
  )
}

function Thumbs({ chosen, onRemove }: { chosen: ChosenPicture[]; onRemove: (one: ChosenPicture) => void }) {
  if (chosen.length === 0) return null
  return (
    <ul class="bare thumbs">
      {chosen.map((one) => (
        <li key={one.address}>
          <img src={one.address} alt={one.name} />
          <IconButton tiny label={`Remove ${one.name}`} icon="close" size={14} onPress={() => onRemove(one)} />
        </li>
      ))}
    </ul>
  )
}

function Attach({ onFiles }: { onFiles: (files: Iterable<File>) => Promise<void> }) {
  return (
    <label class="icon-button" title="Add pictures">
      <Icon name="picture" size={18} />
      <input class="off-screen" type="file" accept="image/png,image/jpeg,image/gif,image/webp" multiple aria-label={`Add pictures (up to ${PICTURES_MAX})`}
        onChange={(event) => { void onFiles([...(event.currentTarget.files ?? [])]); event.currentTarget.value = '' }} />
    </label>
  )
}

/** On a phone Enter makes a line, because there is no other key for it. */
function sendsWith(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey) return true
  if (event.shiftKey || event.altKey) return false
  if (sendKey.value === 'auto') return !touch.value && !phone.value
  return sendKey.value === 'enter'
}

function usePictures() {
  const [chosen, setChosen] = useState<ChosenPicture[]>([])
  const add = async (files: Iterable<File>) => {
    const [fresh, problems] = await readPictures(files, chosen.length)
    for (const problem of problems) toast(problem, true)
    setChosen((before) => [...before, ...fresh])
  }
  const remove = (one: ChosenPicture) => {
    revokePicture(one)
    setChosen((before) => before.filter((other) => other !== one))
  }
  const clear = () => {
    chosen.forEach(revokePicture)
    setChosen([])
  }
  return { chosen, add, remove, clear }
}

function useGrowing(box: { current: HTMLTextAreaElement | null }, text: string): void {
  useLayoutEffect(() => {
    const area = box.current
    if (!area) return
    area.style.setProperty('height', 'auto')
    const line = parseFloat(getComputedStyle(area).lineHeight) || 22
    area.style.setProperty('height', `${Math.min(area.scrollHeight, line * LINES_MAX + 16)}px`)
  }, [text])
}
