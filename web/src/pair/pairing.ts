// How a device comes in: with a code, at once or after a knock that somebody answers.
//
// Every way in which it can fail has its own words, because each has another way out. What happens is a
// value that the page shows; how it is sent is given, so that every course can be written down in a test.

import { ProofNotStored } from '../lib/sign-in-proof'
import { asSentence } from '../lib/format'

/** What the server answers to `POST /ui/enter`. */
export interface SignInReply {
  status: number
  /** Its body, if it was JSON. */
  body: { knock?: unknown; words?: unknown; error?: unknown; message?: unknown } | null
}

export type SendCode = (body: { code: string; name: string } | { knock: string }) => Promise<SignInReply>

export type PairingStep =
  | { is: 'entering' }
  /** Waits for the owner, with the words that stand on both screens. */
  | { is: 'knocking'; words: string }
  | { is: 'in' }
  | { is: 'failed'; why: PairingFailure; message: string }

export type PairingFailure = 'unknown' | 'used' | 'expired' | 'unanswered' | 'refused' | 'full' | 'slow' | 'unreachable' | 'other'

/** What went wrong, and what can be done about it. Where the server says more than this page knows, it is shown. */
export const FAILURES: Record<PairingFailure, { title: string | null; advice: string }> = {
  unknown: { title: 'This code is not valid here', advice: 'Check the code and the address of the server. Codes expire after five minutes.' },
  used: { title: 'This code has already been used', advice: 'Each code works once. Ask for a new one.' },
  expired: { title: 'This code has expired', advice: 'Codes expire after five minutes. Ask for a new one.' },
  unanswered: { title: 'Nobody approved this device in time', advice: 'Ask for a new code, and approve this device on the other screen.' },
  refused: { title: 'This device was rejected', advice: 'Ask the owner of the server, then try again with a new code.' },
  full: { title: 'Too many devices are paired', advice: 'An owner can revoke one under Settings, Devices. Then ask for a new code.' },
  slow: { title: 'Too many attempts', advice: 'Wait a minute, then try again.' },
  unreachable: { title: 'Could not reach the server', advice: 'Check that this device is on the same network and that Ropewalk is running, then try again.' },
  other: { title: null, advice: 'Ask for a new code and try again.' },
}

/** Between two questions about a knock, when the server answers at once. */
const ASK_AGAIN_MS = 1_000
/** A knock lives for five minutes; a connection that breaks meanwhile is tried again for as long. */
const KNOCK_MS = 5 * 60_000

export interface Clock {
  now(): number
  wait(ms: number): Promise<void>
}

const CLOCK: Clock = {
  now: () => Date.now(),
  wait: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
}

/** Goes in, and shows every step. The last one is `in` or `failed`. */
export async function pairDevice(code: string, name: string, send: SendCode, show: (step: PairingStep) => void, clock: Clock = CLOCK): Promise<void> {
  show({ is: 'entering' })
  let answer: SignInReply
  try {
    answer = await send({ code, name })
  } catch (error) {
    return show(unsent(error))
  }
  const began = clock.now()
  while (answer.status === 202 && typeof answer.body?.knock === 'string') {
    const { knock, words } = answer.body
    show({ is: 'knocking', words: typeof words === 'string' ? words : '' })
    const asked = clock.now()
    try {
      answer = await send({ knock })
    } catch (error) {
      if (error instanceof ProofNotStored || clock.now() - began > KNOCK_MS) return show(unsent(error))
    }
    if (answer.status === 202 && clock.now() - asked < ASK_AGAIN_MS) await clock.wait(ASK_AGAIN_MS)
  }
  show(answer.status === 200 || answer.status === 204 ? { is: 'in' } : refused(answer))
}

/** The server's words for why. */
const REASONS = new Map<unknown, PairingFailure>([
  ['code_unknown', 'unknown'],
  ['code_used', 'used'],
  ['code_expired', 'expired'],
  ['knock_expired', 'unanswered'],
  ['knock_refused', 'refused'],
  ['too_many_devices', 'full'],
])

function refused({ status, body }: SignInReply): PairingStep {
  const message = typeof body?.message === 'string' && body.message !== '' ? asSentence(body.message) : `The server answered with status ${status}.`
  if (status === 429) return failed('slow', message)
  return failed(REASONS.get(body?.error) ?? 'other', message)
}

/** Nothing was answered, or what was answered could not be kept. */
function unsent(error: unknown): PairingStep {
  return error instanceof ProofNotStored ? failed('other', error.message) : failed('unreachable', 'Could not reach the server.')
}

function failed(why: PairingFailure, message: string): PairingStep {
  return { is: 'failed', why, message }
}

/** A code as it was scanned, pasted or typed: a whole link is taken for its code. */
export function codeOf(text: string): string {
  const given = text.trim()
  const hash = given.indexOf('#')
  return hash >= 0 ? given.slice(hash + 1).trim() : given
}

/** What a device calls itself until somebody names it. */
export function guessName(agent: string, touchPoints = 0): string {
  const systems: [RegExp, string][] = [
    [/iPhone/, 'iPhone'], [/iPad/, 'iPad'], [/Android/, 'Android'], [/CrOS/, 'Chromebook'],
    [/Mac OS X/, touchPoints > 1 ? 'iPad' : 'Mac'], [/Windows/, 'Windows'], [/Linux/, 'Linux'],
  ]
  const browsers: [RegExp, string][] = [
    [/Edg(A|iOS)?\//, 'Edge'], [/OPR\//, 'Opera'], [/SamsungBrowser\//, 'Samsung Internet'], [/(Firefox|FxiOS)\//, 'Firefox'],
    [/(Chrome|CriOS|Chromium|HeadlessChrome)\//, 'Chrome'], [/Safari\//, 'Safari'],
  ]
  const of = (list: [RegExp, string][]) => list.find(([pattern]) => pattern.test(agent))?.[1]
  const [system, browser] = [of(systems), of(browsers)]
  if (system && browser) return `${browser} on ${system}`
  return system ?? browser ?? 'Browser'
}
