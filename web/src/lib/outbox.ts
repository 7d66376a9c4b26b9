// Prompts that the server has not acknowledged.
//
// Each has a key of its own. When a connection breaks between sending and acknowledging, nobody knows
// whether the prompt arrived; it is sent again with the same key, and the server does it once. They are
// kept in the browser, so that a reload loses none.

import { signal } from '@preact/signals'
import type { Picture } from '../wire'
import { keep, kept } from './keep'
import { ask, Lost, onLive, state } from './line'
import { wordsOf } from './toast'

export const OUTBOX_MAX = 20

export interface Letter {
  session: string
  key: string
  text: string
  pictures: Picture[]
  /** The server has it, as this turn; it goes when the turn is on the screen. */
  turn: number | null
  /** Why the server refused it. */
  failed: string | null
}

export const outbox = signal<readonly Letter[]>(kept<Letter[]>('outbox') ?? [])
const sending = new Set<string>()

export function post(session: string, text: string, pictures: Picture[]): boolean {
  if (outbox.value.length >= OUTBOX_MAX) return false
  const letter: Letter = { session, key: freshKey(), text, pictures, turn: null, failed: null }
  change([...outbox.value, letter])
  void send(letter)
  return true
}

export function again(letter: Letter): void {
  const fresh = { ...letter, failed: null }
  replace(letter.key, fresh)
  void send(fresh)
}

export function withdraw(key: string): void {
  change(outbox.value.filter((letter) => letter.key !== key))
}

/** These turns are on the screen: what was kept of them can go. */
export function arrived(session: string, turns: ReadonlySet<number>): void {
  const left = outbox.peek().filter((letter) => !(letter.session === session && letter.turn !== null && turns.has(letter.turn)))
  if (left.length < outbox.peek().length) change(left)
}

export function startOutbox(): void {
  onLive(() => { for (const letter of outbox.peek()) if (letter.turn === null && letter.failed === null) void send(letter) })
}

async function send(letter: Letter): Promise<void> {
  if (sending.has(letter.key) || state.peek().is !== 'live') return
  sending.add(letter.key)
  let lost = false
  try {
    const { session, key, text, pictures } = letter
    const { turn } = await ask({ do: 'prompt', session, key, text, pictures })
    replace(letter.key, { ...letter, turn })
  } catch (error) {
    lost = error instanceof Lost
    if (!lost) replace(letter.key, { ...letter, failed: wordsOf(error) })
  }
  sending.delete(letter.key)
  // No answer on a connection that still stands: the key makes a second try safe.
  if (lost && state.peek().is === 'live') void send(letter)
}

function replace(key: string, letter: Letter): void {
  change(outbox.peek().map((one) => (one.key === key ? letter : one)))
}

function change(letters: readonly Letter[]): void {
  outbox.value = letters
  keep('outbox', letters.length === 0 ? null : letters.filter((letter) => letter.turn === null))
}

/** `randomUUID` is missing on plain HTTP beyond this machine. */
function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}
