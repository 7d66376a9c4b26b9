import { expect, test } from 'vitest'
import { codeOf, pairDevice, FAILURES, guessName, type SignInReply, type PairingStep } from './pairing'

type Reply = SignInReply | 'broken'

/** What the page shows, in short, when the server answers like this. */
async function check(replies: Reply[]): Promise<{ steps: string[]; sent: unknown[] }> {
  const steps: PairingStep[] = []
  const sent: unknown[] = []
  let now = 0
  const send = async (body: unknown): Promise<SignInReply> => {
    sent.push(body)
    now += 25_000
    const reply = replies.shift()
    if (reply === undefined || reply === 'broken') throw new TypeError('no network')
    return reply
  }
  await pairDevice('CODE', 'my phone', send, (step) => steps.push(step), { now: () => now, wait: async (ms) => void (now += ms) })
  const short = (step: PairingStep) => (step.is === 'failed' ? `failed ${step.why}: ${step.message}` : step.is === 'knocking' ? `knocking ${step.words}` : step.is)
  return { steps: steps.map(short), sent }
}

const waiting: SignInReply = { status: 202, body: { knock: 'K', words: 'amber fox' } }
const no = (status: number, error: string, message = 'it was said why'): SignInReply => ({ status, body: { error, message } })

test('a login link goes in at once', async () => {
  const { steps, sent } = await check([{ status: 200, body: null }])
  expect(steps).toEqual(['entering', 'in'])
  expect(sent).toEqual([{ code: 'CODE', name: 'my phone' }])
})

test('a knock waits with its words until it is answered', async () => {
  const { steps, sent } = await check([waiting, waiting, { status: 200, body: null }])
  expect(steps).toEqual(['entering', 'knocking amber fox', 'knocking amber fox', 'in'])
  expect(sent.slice(1)).toEqual([{ knock: 'K' }, { knock: 'K' }])
})

test('a knock survives a connection that breaks, and is given up when nobody can be reached', async () => {
  expect((await check([waiting, 'broken', { status: 200, body: null }])).steps.at(-1)).toBe('in')
  expect((await check([waiting])).steps.at(-1)).toBe('failed unreachable: Could not reach the server.')
})

test('each refusal is told from the others, in the server’s words', async () => {
  const cases = [
    [403, 'code_unknown', 'unknown'], [410, 'code_used', 'used'], [410, 'code_expired', 'expired'],
    [410, 'knock_expired', 'unanswered'], [403, 'knock_refused', 'refused'], [409, 'too_many_devices', 'full'],
  ] as const
  for (const [status, error, why] of cases) {
    expect((await check([no(status, error)])).steps.at(-1)).toBe(`failed ${why}: It was said why.`)
    expect((await check([waiting, no(status, error)])).steps.at(-1)).toBe(`failed ${why}: It was said why.`)
  }
  expect(new Set(Object.values(FAILURES).map(({ title }) => title)).size).toBe(Object.keys(FAILURES).length)
  expect((await check([no(429, 'too_many_wrong_codes', 'wait!')])).steps.at(-1)).toBe('failed slow: Wait!')
  expect((await check(['broken'])).steps.at(-1)).toBe('failed unreachable: Could not reach the server.')
})

test('what the page does not know is still told', async () => {
  expect((await check([no(418, '__proto__', 'odd')])).steps.at(-1)).toBe('failed other: Odd.')
  expect((await check([{ status: 500, body: null }])).steps.at(-1)).toBe('failed other: The server answered with status 500.')
  expect((await check([{ status: 202, body: { knock: 7 } }])).steps.at(-1)).toBe('failed other: The server answered with status 202.')
})

test('a pasted link is taken for its code', () => {
  expect(codeOf(' https://192.168.1.2:5173/pair#abc-DEF_1 ')).toBe('abc-DEF_1')
  expect(codeOf('k7qx-4mpa')).toBe('k7qx-4mpa')
})

test('a device is named after its browser and system', () => {
  const cases: [string, string][] = [
    ['Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 Version/19.0 Mobile/15E148 Safari/604.1', 'Safari on iPhone'],
    ['Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 Chrome/156.0.0.0 Mobile Safari/537.36', 'Chrome on Android'],
    ['Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0', 'Firefox on Linux'],
    ['Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/156.0 Safari/537.36 Edg/156.0', 'Edge on Windows'],
    ['', 'Browser'],
  ]
  for (const [agent, name] of cases) expect(guessName(agent)).toBe(name)
  expect(guessName('Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/19.0 Safari/605.1.15', 5)).toBe('Safari on iPad')
})
