// Prompts that the server has not acknowledged.
//
// Each has a key of its own. When a connection breaks between sending and acknowledging, nobody knows
// whether the prompt arrived; it is sent again with the same key, and the server does it once. They are
// kept in the browser, each by itself, so that a reload loses none and no tab overwrites another's.

import { signal } from '@preact/signals'
import type { Picture } from '../wire'
import { writeStored, readStored, storedNames, onStoredRemoved } from './browser-storage'
import { sendRequest, ConnectionLost, onConnected, connectionState } from './connection'
import { errorText } from './toast'

export const OUTBOX_MAX = 20

export interface OutboxPrompt {
  session: string
  key: string
  text: string
  pictures: Picture[]
  /** The server has it, as this turn; it goes when the turn is on the screen. */
  turn: number | null
  /** Why the server refused it. */
  failed: string | null
  /** It was on its way at least once: it may have arrived. */
  sent: boolean
  /** The browser could not keep it: closing the page loses it. */
  unkept: boolean
}

export const outbox = signal<readonly OutboxPrompt[]>(storedNames('outbox.').flatMap((name) => readStored<OutboxPrompt>(name) ?? []))
const sending = new Set<string>()
/** What became turns, as it was written: the server tells only the beginning of what waits. */
const taken = new Map<string, OutboxPrompt>()

/** The letter that became this turn, if it was written here. */
export function outboxPromptOf(session: string, turn: number): OutboxPrompt | undefined {
  return taken.get(`${session} ${turn}`)
}

export function queuePrompt(session: string, text: string, pictures: Picture[]): boolean {
  if (outbox.value.length >= OUTBOX_MAX) return false
  const letter: OutboxPrompt = { session, key: freshKey(), text, pictures, turn: null, failed: null, sent: false, unkept: false }
  letter.unkept = !writeStored(nameOf(letter.key), letter)
  change([...outbox.value, letter])
  void send(letter)
  return true
}

export function retryPrompt(letter: OutboxPrompt): void {
  const fresh = { ...letter, failed: null }
  replace(letter.key, fresh)
  void send(fresh)
}

export function withdrawPrompt(key: string): void {
  change(outbox.value.filter((letter) => letter.key !== key))
}

/** A session is deleted: nothing of it is sent any more. */
export function withdrawPrompts(session: string): void {
  change(outbox.value.filter((letter) => letter.session !== session))
}

/** These turns are on the screen: what was kept of them can go. `newest` is the newest turn that ever was there: what is older is over. */
export function confirmArrived(session: string, turns: ReadonlySet<number>, newest = -1): void {
  const left = outbox.peek().filter((letter) => !(letter.session === session && letter.turn !== null && (turns.has(letter.turn) || letter.turn <= newest)))
  if (left.length < outbox.peek().length) change(left)
}

export function startOutbox(): void {
  // Another tab has sent it, or taken it back.
  onStoredRemoved((name) => {
    const left = outbox.peek().filter((letter) => letter.turn !== null || nameOf(letter.key) !== name || sending.has(letter.key))
    if (left.length < outbox.peek().length) outbox.value = left
  })
  onConnected(() => { for (const letter of outbox.peek()) if (letter.turn === null && letter.failed === null) void send(letter) })
}

async function send(given: OutboxPrompt): Promise<void> {
  if (sending.has(given.key) || connectionState.peek().is !== 'live') return
  sending.add(given.key)
  const letter = given.sent ? given : { ...given, sent: true }
  if (letter !== given) replace(letter.key, letter)
  let lost = false
  try {
    const { session, key, text, pictures } = letter
    const { turn } = await sendRequest({ do: 'prompt', session, key, text, pictures })
    remember({ ...letter, turn })
    replace(letter.key, { ...letter, turn })
  } catch (error) {
    lost = error instanceof ConnectionLost
    if (!lost) replace(letter.key, { ...letter, failed: errorText(error) })
  }
  sending.delete(letter.key)
  // No answer on a connection that still stands: the key makes a second try safe.
  if (lost && connectionState.peek().is === 'live') void send(letter)
}

function replace(key: string, letter: OutboxPrompt): void {
  change(outbox.peek().map((one) => (one.key === key ? letter : one)))
}

function change(letters: readonly OutboxPrompt[]): void {
  const before = outbox.peek()
  outbox.value = letters
  const here = new Set(letters.map((letter) => letter.key))
  for (const { key } of before) if (!here.has(key)) writeStored(nameOf(key), null)
  for (const letter of letters) if (!before.includes(letter)) writeStored(nameOf(letter.key), letter.turn === null ? letter : null)
}

const nameOf = (key: string) => `outbox.${key}`

function remember(letter: OutboxPrompt): void {
  taken.set(`${letter.session} ${letter.turn}`, letter)
  const oldest = taken.keys().next().value
  if (taken.size > OUTBOX_MAX && oldest !== undefined) taken.delete(oldest)
}

/** `randomUUID` is missing on plain HTTP beyond this machine. */
function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}
