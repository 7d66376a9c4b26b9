// Something that is shown once, to be copied: a link with a code, a token.

import { useRef } from 'preact/hooks'
import { copy } from '../lib/toast'

export function Secret({ label, text }: { label: string; text: string }) {
  const field = useRef<HTMLInputElement>(null)
  return (
    <div class="secret">
      <input ref={field} readOnly value={text} aria-label={label} spellcheck={false} onFocus={(event) => event.currentTarget.select()} />
      <button type="button" class="button-main" onClick={() => void copy(text)}>Copy</button>
    </div>
  )
}
