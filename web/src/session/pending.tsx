// The reader's own prompts that the server has not confirmed: shown as sent, and as what they are.

import { useSignalEffect } from '@preact/signals'
import { appendDraft } from '../lib/draft'
import { state } from '../lib/line'
import { again, arrived, outbox, withdraw } from '../lib/outbox'
import type { Watched } from '../lib/session'

export function Pending({ watched }: { watched: Watched }) {
  useSignalEffect(() => {
    const turns = new Set(watched.state.value?.queue.map((one) => one.turn))
    for (const id of watched.rows.ids.value.slice(-80)) {
      const row = watched.rows.get(id)?.peek()
      if (row?.turn != null && row.is === 'prompt') turns.add(row.turn)
    }
    arrived(watched.session, turns)
  })
  const letters = outbox.value.filter((letter) => letter.session === watched.session)
  return (
    <>
      {letters.map((letter) => (
        <div key={letter.key} class={`bubble pending ${letter.failed ? 'failed' : ''}`}>
          <p class="bubble-text">{letter.text}</p>
          {letter.failed
            ? <p class="pending-state" role="alert"><span>Not sent: {letter.failed}</span>
              <button type="button" class="plain" onClick={() => again(letter)}>Try again</button>
              <button type="button" class="plain" onClick={() => { withdraw(letter.key); appendDraft(watched.session, letter.text) }}>Edit</button>
            </p>
            : <p class="pending-state soft">{letter.turn !== null ? 'Accepted' : state.value.is === 'live' ? 'Sending…' : 'Will be sent when there is a connection'}
              {letter.turn === null && state.value.is !== 'live' && <button type="button" class="plain" onClick={() => { withdraw(letter.key); appendDraft(watched.session, letter.text) }}>Edit</button>}
            </p>}
        </div>
      ))}
    </>
  )
}
