// Answers on their way. A question is the server's: it goes from the screen when the server says that it
// is settled, and until then the screen says how far the answer has come.

import { signal } from '@preact/signals'
import type { AskView, Decision, Role } from '../wire'
import { isAtHub } from '../lib/hub-state'
import { sendRequest, hello, RequestRefused } from '../lib/connection'
import { toast, errorText } from '../lib/toast'

export type AnswerProgress = { is: 'sending' } | { is: 'accepted' } | { is: 'failed'; message: string } | { is: 'settled'; message: string }

export const answerProgress = signal<ReadonlyMap<string, AnswerProgress>>(new Map())
const PROGRESS_MAX = 100

export const askKey = (one: { session: string; ask: number }) => `${one.session} ${one.ask}`

export function answerProgressOf(one: AskView): AnswerProgress | undefined {
  return answerProgress.value.get(askKey(one))
}

export async function answer(one: AskView, decision: Decision, text: string | null = null): Promise<void> {
  const key = askKey(one)
  const before = answerProgress.peek().get(key)
  if (before && before.is !== 'failed') return
  set(key, { is: 'sending' })
  try {
    await sendRequest({ do: 'answer', session: one.session, ask: one.ask, decision, text })
    set(key, { is: 'accepted' })
  } catch (error) {
    const settled = error instanceof RequestRefused && error.code === 'answered'
    set(key, { is: settled ? 'settled' : 'failed', message: errorText(error) })
    const text = errorText(error)
    if (settled) toast(text.startsWith('it was ') ? `Already answered: ${text}` : text)
  }
}

/** This client answered it, or tried to. */
export function answeredHere(one: { session: string; ask: number }): boolean {
  return answerProgress.peek().has(askKey(one))
}

const RANK: Record<Role, number> = { viewer: 0, approver: 1, driver: 2, owner: 3 }

/** Whether this client may do what takes this role. Before the greeting it is assumed: the server decides. */
export function hasRole(role: Role): boolean {
  const mine = hello.value?.role
  return mine === undefined || RANK[mine] >= RANK[role]
}

/** Whether an answer can hold for good. It would become a rule, and a machine takes those from nobody elsewhere. */
export function mayAnswerAlways(): boolean {
  return !isAtHub()
}

/** Whether an answer for good becomes a rule of the machine. Of somebody who is not at it, it holds in the session alone. */
export function makesRules(): boolean {
  return hello.value?.makesRules === true
}

function set(key: string, value: AnswerProgress): void {
  const next = new Map(answerProgress.value)
  next.delete(key)
  next.set(key, value)
  for (const oldest of next.keys()) {
    if (next.size <= PROGRESS_MAX) break
    next.delete(oldest)
  }
  answerProgress.value = next
}
