// A question of the agent's: choices, own words, or both.

import { useState } from 'preact/hooks'
import type { AskView } from '../wire'
import { visible } from '../lib/format'
import { answer } from './answer'

export function QuestionForm({ ask, disabled }: { ask: AskView; disabled: boolean }) {
  const [text, setText] = useState('')
  const question = ask.question
  if (!question) return null
  const free = question.freeText || question.choices.length === 0
  return (
    <form class="decisions" onSubmit={(event) => {
      event.preventDefault()
      if (text.trim() !== '') void answer(ask, 'reply', text.trim())
    }}>
      {question.choices.map((choice) => (
        <button key={choice} type="button" class="decision choice" disabled={disabled} onClick={() => void answer(ask, 'reply', choice)}>{visible(choice)}</button>
      ))}
      {free && <>
        <label class="field">{question.choices.length > 0 ? 'Or write your own answer' : 'Your answer'}
          <textarea rows={2} value={text} maxLength={8_000} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button type="submit" class="decision allow" disabled={disabled || text.trim() === ''}>Answer</button>
      </>}
      <button type="button" class="decision" disabled={disabled} onClick={() => void answer(ask, 'denyOnce')}>Decline</button>
    </form>
  )
}
