// Something that is shown once, to be copied: a link with a code, a token.

import { useRef } from 'preact/hooks'
import { copyText } from '../lib/toast'

export function OneTimeSecret({ label, text }: { label: string; text: string }) {
  const field = useRef<HTMLInputElement>(null)
  return (
    <div class="secret">
      <input ref={field} readOnly value={text} aria-label={label} spellcheck={false} onFocus={(event) => event.currentTarget.select()} />
      <button type="button" class="button-main" onClick={() => void copyText(text)}>Copy</button>
    </div>
  )
}
