// Passkeys of this browser: one is made, or one is used to come in.
//
// The server says what it wants and judges what it gets; here bytes become text and back, and whatever a
// browser can object to becomes words that say what helps.

import { proofHeaders, storeProof } from '../lib/sign-in-proof'
import { asSentence } from '../lib/format'

/** Why it did not work, in words for a person. */
export class PasskeyFailed extends Error {}

/** How something is asked of the server: gives the JSON of its answer, or throws its words. */
export type Post = (path: string, body: unknown) => Promise<unknown>

export function hasPasskeys(): boolean {
  return isSecureContext && typeof PublicKeyCredential !== 'undefined' && navigator.credentials !== undefined
}

/** `name` is what this browser is known by afterwards. */
export async function signIn(name: string, send: Post = post): Promise<void> {
  const asked = optionsOf(await send('/auth/passkey/begin', {}))
  const publicKey = { ...asked, challenge: bytesOf(asked.challenge), allowCredentials: listed(asked.allowCredentials) } as unknown as PublicKeyCredentialRequestOptions
  const found = await tryIt('used', () => navigator.credentials.get({ publicKey }))
  await storeProof(await send('/auth/passkey/finish', { name, credential: signed(found) }))
}

/** The person is signed in; `name` is what they will know it by. */
export async function addPasskey(name: string, send: Post = post): Promise<void> {
  const asked = optionsOf(await send('/auth/passkey/new/begin', {}))
  const user = asked.user as { id: unknown } | undefined
  const publicKey = {
    ...asked,
    challenge: bytesOf(asked.challenge),
    user: { ...user, id: bytesOf(user?.id) },
    excludeCredentials: listed(asked.excludeCredentials),
  } as unknown as PublicKeyCredentialCreationOptions
  const made = await tryIt('created', () => navigator.credentials.create({ publicKey }))
  await send('/auth/passkey/new/finish', { name, credential: created(made) })
}

/** What the server wants, in the form that browsers have for it (`PublicKeyCredentialCreationOptionsJSON`). */
function optionsOf(body: unknown): Record<string, unknown> {
  const given = (body as { publicKey?: unknown } | null)?.publicKey ?? body
  if (typeof given !== 'object' || given === null) throw new PasskeyFailed('The hub sent an incomplete answer. Reload the page and try again.')
  return given as Record<string, unknown>
}

function listed(list: unknown): { type: 'public-key'; id: Uint8Array<ArrayBuffer> }[] {
  if (!Array.isArray(list)) return []
  return list.map((one: { id?: unknown; transports?: unknown }) => ({ ...one, type: 'public-key', id: bytesOf(one.id) }))
}

function created(credential: PublicKeyCredential) {
  const { clientDataJSON, attestationObject } = credential.response as AuthenticatorAttestationResponse
  return { ...common(credential), response: { clientDataJSON: textOf(clientDataJSON), attestationObject: textOf(attestationObject) } }
}

function signed(credential: PublicKeyCredential) {
  const { clientDataJSON, authenticatorData, signature, userHandle } = credential.response as AuthenticatorAssertionResponse
  return {
    ...common(credential),
    response: { clientDataJSON: textOf(clientDataJSON), authenticatorData: textOf(authenticatorData), signature: textOf(signature), userHandle: userHandle === null ? null : textOf(userHandle) },
  }
}

const common = ({ id, rawId, type }: PublicKeyCredential) => ({ id, rawId: textOf(rawId), type })

async function tryIt(what: 'created' | 'used', run: () => Promise<Credential | null>): Promise<PublicKeyCredential> {
  let credential: Credential | null
  try {
    credential = await run()
  } catch (error) {
    throw new PasskeyFailed(passkeyProblem(what, error))
  }
  if (!credential) throw new PasskeyFailed(`No passkey was ${what}. Try again.`)
  return credential as PublicKeyCredential
}

export function passkeyProblem(what: 'created' | 'used', error: unknown): string {
  switch (error instanceof Error ? error.name : '') {
    case 'NotAllowedError':
      return `No passkey was ${what}. It was cancelled or timed out, or this device has none for this hub.`
    case 'InvalidStateError':
      return 'This device already has a passkey for you.'
    case 'SecurityError':
      return 'Passkeys work only at the hub’s public URL, over HTTPS. Open the hub at that URL.'
    case 'NotSupportedError':
      return 'This device cannot create the kind of passkey that the hub accepts. Use another device.'
    default:
      return `No passkey was ${what}${error instanceof Error && error.message ? `: ${error.message}` : '.'}`
  }
}

/** Posts JSON to the hub. */
export async function post(path: string, body: unknown): Promise<unknown> {
  let response: Response
  try {
    response = await fetch(path, { method: 'POST', headers: { 'content-type': 'application/json', ...proofHeaders() }, body: JSON.stringify(body), cache: 'no-store' })
  } catch {
    throw new PasskeyFailed('Could not reach the hub. Try again.')
  }
  const answer = (await response.json().catch(() => null)) as { message?: unknown } | null
  if (response.ok) return answer
  throw new PasskeyFailed(typeof answer?.message === 'string' && answer.message !== '' ? asSentence(answer.message) : `The hub answered with status ${response.status}. Try again.`)
}

export function textOf(bytes: ArrayBuffer): string {
  return btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '')
}

export function bytesOf(text: unknown): Uint8Array<ArrayBuffer> {
  if (typeof text !== 'string') throw new PasskeyFailed('The hub sent an incomplete answer. Reload the page and try again.')
  return Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (char) => char.charCodeAt(0))
}
