import { afterEach, expect, test, vi } from 'vitest'
import { parseSignInLink, parsePastedLink } from './sign-in-link'
import { dateInputValue, expiryTime } from './expiry'
import { pairingFragment } from './pairing-link'
import { addPasskey, bytesOf, passkeyProblem, signIn, textOf } from './passkey'

afterEach(() => vi.unstubAllGlobals())

test('a link into a hub is known by what it is for', () => {
  expect(parseSignInLink('#setup.abcdefgh_-1')).toEqual({ kind: 'setup', code: 'abcdefgh_-1' })
  expect(parseSignInLink('#join.abcdefgh')).toEqual({ kind: 'join', code: 'abcdefgh' })
  expect(parseSignInLink('#share.abcdefgh')).toEqual({ kind: 'share', code: 'abcdefgh' })
  for (const other of ['', '#', '#r12', '#abcdefgh', '#admin.abcdefgh', '#join.short', '#join.abc defgh', '#join.<img>aaaaaa', `#join.${'a'.repeat(300)}`]) expect(parseSignInLink(other), other).toBeNull()
})

test('a pasted link is taken for its code', () => {
  expect(parsePastedLink(' https://hub.example.org/s/x#share.abcdefgh ')).toEqual({ kind: 'share', code: 'abcdefgh' })
  expect(parsePastedLink('join.abcdefgh')).toEqual({ kind: 'join', code: 'abcdefgh' })
  expect(parsePastedLink('https://hub.example.org/')).toBeNull()
})

test('a link that pairs with a sealed machine is told from all others', () => {
  const fragment = `m-vault.${'a'.repeat(22)}.${'b'.repeat(22)}`
  for (const text of [fragment, `#${fragment}`, ` https://hub.example.org/pair#${fragment}\n`]) expect(pairingFragment(text), text).toBe(fragment)
  for (const text of ['', '#', 'K7QX-4MPA', 'join.abcdefgh', `${fragment}.`, `${fragment}c`, `/../${fragment}`]) expect(pairingFragment(text), text).toBeNull()
})

test('an end is so long from now, or the end of a day that is not over', () => {
  const now = new Date(2026, 10, 16, 15, 0).getTime()
  expect(expiryTime('hour', '', now)).toBe(now + 3_600_000)
  expect(expiryTime('week', '', now)).toBe(now + 7 * 86_400_000)
  expect(expiryTime('date', '2026-11-16', now)).toBe(new Date(2026, 10, 16, 23, 59, 59, 999).getTime())
  for (const date of ['', '2026-11-15', '2026-02-31', 'soon', '2026-11-16T10:00']) expect(expiryTime('date', date, now), date).toBeNull()
  expect(expiryTime('never', '', now)).toBeNull()
  expect(dateInputValue(now)).toBe('2026-11-16')
})

const bytes = (...values: number[]) => new Uint8Array(values).buffer

/** A browser with an authenticator that gives this, or refuses like this. */
function authenticator(response: Record<string, ArrayBuffer | null>, refusal?: Error) {
  const asked: unknown[] = []
  const act = async ({ publicKey }: { publicKey: unknown }) => {
    asked.push(publicKey)
    if (refusal) throw refusal
    return { id: '-_8', rawId: bytes(251, 255), type: 'public-key', response }
  }
  vi.stubGlobal('navigator', { credentials: { get: act, create: act } })
  return asked as Record<string, unknown>[]
}

test('a sign-in answers the challenge of the server, in letters', async () => {
  const asked = authenticator({ clientDataJSON: bytes(1), authenticatorData: bytes(2), signature: bytes(3), userHandle: null })
  const sent: [string, unknown][] = []
  await signIn('Chrome on Linux', async (path, body) => {
    sent.push([path, body])
    return { publicKey: { challenge: '-_8', rpId: 'hub.example.org', allowCredentials: [] } }
  })
  expect(asked[0]).toMatchObject({ challenge: new Uint8Array([251, 255]), rpId: 'hub.example.org' })
  expect(sent[1]).toEqual(['/auth/passkey/finish', {
    name: 'Chrome on Linux',
    credential: { id: '-_8', rawId: '-_8', type: 'public-key', response: { clientDataJSON: 'AQ', authenticatorData: 'Ag', signature: 'Aw', userHandle: null } },
  }])
})

test('a new passkey is made for the person that the server names, and not twice on one device', async () => {
  const asked = authenticator({ clientDataJSON: bytes(1), attestationObject: bytes(2) })
  const sent: [string, unknown][] = []
  await addPasskey('my key', async (path, body) => {
    sent.push([path, body])
    return { publicKey: { challenge: 'AQ', user: { id: 'Ag', name: 'dev', displayName: 'dev' }, excludeCredentials: [{ type: 'public-key', id: 'Aw' }] } }
  })
  expect(asked[0]).toMatchObject({ user: { id: new Uint8Array([2]), name: 'dev' }, excludeCredentials: [{ id: new Uint8Array([3]) }] })
  expect(sent[1]).toEqual(['/auth/passkey/new/finish', { name: 'my key', credential: { id: '-_8', rawId: '-_8', type: 'public-key', response: { clientDataJSON: 'AQ', attestationObject: 'Ag' } } }])
})

test('what a browser objects to is told in words that help, and nothing is sent', async () => {
  const named = (name: string) => Object.assign(new Error('x'), { name })
  authenticator({}, named('NotAllowedError'))
  const sent: string[] = []
  const send = async (path: string) => {
    sent.push(path)
    return { publicKey: { challenge: 'AQ' } }
  }
  await expect(signIn('me', send)).rejects.toThrow(/cancelled/)
  expect(sent).toEqual(['/auth/passkey/begin'])
  const all = ['NotAllowedError', 'InvalidStateError', 'SecurityError', 'NotSupportedError', 'Other'].map((name) => passkeyProblem('created', named(name)))
  expect(new Set(all).size).toBe(all.length)
  await expect(signIn('me', async () => null)).rejects.toThrow(/incomplete answer/)
  await expect(signIn('me', async () => ({ publicKey: { challenge: 7 } }))).rejects.toThrow(/incomplete answer/)
})

test('bytes become letters and back', () => {
  for (const given of [[], [0], [255, 254], [1, 2, 3, 4, 5]]) expect([...bytesOf(textOf(bytes(...given)))]).toEqual(given)
})
