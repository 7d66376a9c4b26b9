// The reader's own prompts that the server has not confirmed: shown as sent, and as what they are.

import { useSignalEffect } from '@preact/signals'
import { appendDraft } from '../lib/draft'
import { connectionState } from '../lib/connection'
import { retryPrompt, confirmArrived, type OutboxPrompt, outbox, withdrawPrompt } from '../lib/outbox'
import type { WatchedSession } from '../lib/watched-session'

export function PendingPrompts({ watched }: { watched: WatchedSession }) {
  useSignalEffect(() => {
    if (outbox.value.length === 0 || !watched.fresh.value) return
    let newest = watched.state.value?.turn ?? -1
    const turns = new Set(watched.state.value?.queue.map((one) => one.turn))
    for (const id of watched.rows.ids.value.slice(-80)) {
      const row = watched.rows.get(id)?.peek()
      if (row?.turn != null) newest = Math.max(newest, row.turn)
      if (row?.turn != null && row.is === 'prompt') turns.add(row.turn)
    }
    confirmArrived(watched.session, turns, newest)
  })
  const letters = outbox.value.filter((letter) => letter.session === watched.session)
  return (
    <>
      {letters.map((letter) => (
        <div key={letter.key} class={`bubble pending ${letter.failed ? 'failed' : ''}`}>
          <p class="bubble-text">{letter.text}</p>
          {letter.failed
            ? <p class="pending-state" role="alert"><span>Not sent: {letter.failed}</span>
              <button type="button" class="plain" onClick={() => retryPrompt(letter)}>Try again</button>
              <button type="button" class="plain" onClick={() => { withdrawPrompt(letter.key); appendDraft(watched.session, letter.text) }}>Edit</button>
            </p>
            : <p class="pending-state soft"><span>{progressOf(letter)}</span>
              {letter.turn === null && !letter.sent && connectionState.value.is !== 'live' && <button type="button" class="plain" onClick={() => { withdrawPrompt(letter.key); appendDraft(watched.session, letter.text) }}>Edit</button>}
            </p>}
        </div>
      ))}
    </>
  )
}

/** Words for how far it is. One that was on its way cannot be edited any more: it would be done twice. */
function progressOf(letter: OutboxPrompt): string {
  if (letter.turn !== null) return 'Accepted'
  if (connectionState.value.is === 'live') return 'Sending…'
  const loses = letter.unkept ? ' Keep this page open until then: the browser has no space to save it.' : ''
  return letter.sent ? `May have arrived. It is sent again when the connection is back, and runs only once.${loses}` : `Will be sent when the connection is back.${loses}`
}
