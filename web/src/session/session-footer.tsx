// Below the conversation: what waits in the queue, the composer, and what stops a turn.

import { useEffect, useState } from 'preact/hooks'
import type { SessionState, Waiting } from '../wire'
import { hasRole } from '../ask/answer'
import { cards } from '../lib/board'
import { appendDraft } from '../lib/draft'
import { hubVisit, offlineMachineOf, isGuest } from '../lib/hub-state'
import { sendRequest } from '../lib/connection'
import { outboxPromptOf, queuePrompt } from '../lib/outbox'
import { sessionPath } from '../lib/router'
import { type WatchedSession, watchedSession as watchedAs } from '../lib/watched-session'
import { toast, toastOnError } from '../lib/toast'
import { lockOf } from '../lib/sealed-connection'
import { dateOnly } from '../lib/format'
import { IconButton } from '../ui/icon-button'
import { Icon } from '../ui/icons'
import { offlineText } from './session-banners'
import { Composer } from './composer'
import { setIn, SettingChips } from './setting-chips'

/** The server tells so much of a prompt that waits; what is as long has been cut. */
const WAITING_BYTES = 6_140

const EMPTY_SETTINGS: SessionState['settings'] = []
const EMPTY_COMMANDS: SessionState['commands'] = []

export function SessionFooter({ watched }: { watched: WatchedSession }) {
  const state = watched.state.value
  const { session } = watched
  if (!hasRole('driver')) return <p class="note-bar soft">{hasRole('approver') ? 'You can answer requests, but not send prompts.' : 'You have view-only access.'} {hubVisit.value ? (isGuest.value && 'Ask whoever sent you the link for one with a higher role.') : 'The owner can pair this device again with a higher role.'}</p>
  if (lockOf(session) !== null) return null
  const branch = cards.value.get(session)?.branch
  if (branch) return <p class="note-bar soft"><span>This is a read-only copy of the session from before its machine was restored on {dateOnly(branch.at)}.</span><a href={sessionPath(branch.of)}>Continue the session</a></p>
  const busy = state?.busy ?? false
  const send = (text: string, pictures: Parameters<typeof queuePrompt>[2]) => {
    // The text stays in the composer: it would reach nobody.
    const away = offlineMachineOf(session)
    if (away) {
      toast(offlineText(away), true)
      return false
    }
    const taken = queuePrompt(session, text, pictures)
    if (!taken) toast('Too many prompts are waiting to be sent. Try again when the connection is back.', true)
    return taken
  }
  return (
    <>
      {state && state.queue.length > 0 && <Queue session={session} queue={state.queue} />}
      <Composer draftOf={session} session={session} commands={state?.commands ?? EMPTY_COMMANDS} onSend={send} busy={busy}
        placeholder={busy ? 'What should the agent do next?' : 'What should the agent do?'}
        stop={busy && !offlineMachineOf(session) ? <StopButton session={session} turn={state?.turn ?? null} /> : undefined}
        chips={<SettingChips settings={state?.settings ?? EMPTY_SETTINGS} disabled={false} onSet={setIn(session)} />} />
    </>
  )
}

function Queue({ session, queue }: { session: string; queue: readonly Waiting[] }) {
  const take = (turn: number) => toastOnError(sendRequest({ do: 'cancel', session, turn }))
  const edit = (turn: number, text: string) => void take(turn).then((done) => { if (done) appendDraft(session, text) })
  return (
    <ul class="bare queue" aria-label="Queued prompts">
      {queue.map((one) => {
        const text = editable(session, one)
        return (
          <li key={one.turn} class="queued">
            <span class="soft">Next</span><span class="queued-text">{one.text}</span>
            {text !== null && <IconButton tiny label="Edit" icon="pencil" size={15} onPress={() => edit(one.turn, text)} />}
            <IconButton tiny label="Remove from queue" icon="close" size={15} onPress={() => void take(one.turn)} />
          </li>
        )
      })}
    </ul>
  )
}

/** All of a prompt that waits; nothing if some of it, or its pictures, would be lost by editing it. */
function editable(session: string, { turn, text }: Waiting): string | null {
  const mine = outboxPromptOf(session, turn)
  if (mine) return mine.pictures.length > 0 ? null : mine.text
  return new TextEncoder().encode(text).length < WAITING_BYTES ? text : null
}

/** Stops the turn that runs, by its id: without one the prompts behind it would go too. */
export function stopTurn(session: string): Promise<boolean> {
  const turn = watchedAs(session)?.state.peek()?.turn ?? null
  return toastOnError(sendRequest({ do: 'cancel', session, turn }))
}

function StopButton({ session, turn }: { session: string; turn: number | null }) {
  const [asked, setAsked] = useState(false)
  useEffect(() => setAsked(false), [turn])
  const press = () => {
    if (asked) return toast('Already stopping. The agent stops as soon as it can.')
    setAsked(true)
    void stopTurn(session).then((done) => { if (!done) setAsked(false) })
  }
  return <button type="button" class="send stop" aria-label="Stop" onClick={press}><Icon name="stop" /><span class="send-word">{asked ? 'Stopping…' : 'Stop'}</span></button>
}
