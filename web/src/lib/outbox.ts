// Prompts that the server has not acknowledged.
//
// Each has a key of its own. When a connection breaks between sending and acknowledging, nobody knows
// whether the prompt arrived; it is sent again with the same key, and the server does it once. They are
// kept in the browser, each by itself, so that a reload loses none and no tab overwrites another's.

import { signal } from '@preact/signals'
import type { Picture } from '../wire'
import { keep, kept, keptNames, onDropped } from './keep'
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
  /** It was on its way at least once: it may have arrived. */
  sent: boolean
  /** The browser could not keep it: closing the page loses it. */
  unkept: boolean
}

export const outbox = signal<readonly Letter[]>(keptNames('outbox.').flatMap((name) => kept<Letter>(name) ?? []))
const sending = new Set<string>()
/** What became turns, as it was written: the server tells only the beginning of what waits. */
const taken = new Map<string, Letter>()

/** The letter that became this turn, if it was written here. */
export function letterOf(session: string, turn: number): Letter | undefined {
  return taken.get(`${session} ${turn}`)
}

export function post(session: string, text: string, pictures: Picture[]): boolean {
  if (outbox.value.length >= OUTBOX_MAX) return false
  const letter: Letter = { session, key: freshKey(), text, pictures, turn: null, failed: null, sent: false, unkept: false }
  letter.unkept = !keep(nameOf(letter.key), letter)
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

/** A session is deleted: nothing of it is sent any more. */
export function withdrawAll(session: string): void {
  change(outbox.value.filter((letter) => letter.session !== session))
}

/** These turns are on the screen: what was kept of them can go. `newest` is the newest turn that ever was there: what is older is over. */
export function arrived(session: string, turns: ReadonlySet<number>, newest = -1): void {
  const left = outbox.peek().filter((letter) => !(letter.session === session && letter.turn !== null && (turns.has(letter.turn) || letter.turn <= newest)))
  if (left.length < outbox.peek().length) change(left)
}

export function startOutbox(): void {
  // Another tab has sent it, or taken it back.
  onDropped((name) => {
    const left = outbox.peek().filter((letter) => letter.turn !== null || nameOf(letter.key) !== name || sending.has(letter.key))
    if (left.length < outbox.peek().length) outbox.value = left
  })
  onLive(() => { for (const letter of outbox.peek()) if (letter.turn === null && letter.failed === null) void send(letter) })
}

async function send(given: Letter): Promise<void> {
  if (sending.has(given.key) || state.peek().is !== 'live') return
  sending.add(given.key)
  const letter = given.sent ? given : { ...given, sent: true }
  if (letter !== given) replace(letter.key, letter)
  let lost = false
  try {
    const { session, key, text, pictures } = letter
    const { turn } = await ask({ do: 'prompt', session, key, text, pictures })
    remember({ ...letter, turn })
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
  const before = outbox.peek()
  outbox.value = letters
  const here = new Set(letters.map((letter) => letter.key))
  for (const { key } of before) if (!here.has(key)) keep(nameOf(key), null)
  for (const letter of letters) if (!before.includes(letter)) keep(nameOf(letter.key), letter.turn === null ? letter : null)
}

const nameOf = (key: string) => `outbox.${key}`

function remember(letter: Letter): void {
  taken.set(`${letter.session} ${letter.turn}`, letter)
  const oldest = taken.keys().next().value
  if (taken.size > OUTBOX_MAX && oldest !== undefined) taken.delete(oldest)
}

/** `randomUUID` is missing on plain HTTP beyond this machine. */
function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}
