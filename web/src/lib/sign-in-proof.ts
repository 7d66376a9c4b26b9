// The proof that this browser is signed in: shown beside the cookie, which alone opens nothing.
//
// Browsers send a cookie to every port of its host, so other programs of the same machine get it too. What is
// kept here only pages of this very origin can read, port and all. The server gives it once, when a browser
// signs in; at a hub there is one for the sign-in and one for a session that was shared by a link.

import { writeStored, readStored } from './browser-storage'

/** Where the server reads it. */
export const PROOF_HEADER = 'x-ropewalk-proof'
const OFFERED = 'proof.'
const FORM = /^[\w-]{20,128}$/
const NAMES = ['proof', 'proof.share'] as const
/** The service worker cannot read what a page keeps; it finds a copy under this name. */
const CACHE = 'ropewalk-proof'
const PLACE = '/proof'

export class ProofNotStored extends Error {
  constructor() {
    super('This browser could not store the sign-in. Allow this site to store data, or free some space, then try again with a new link.')
  }
}

function proofs(): string[] {
  return NAMES.map((name) => readStored<unknown>(name)).filter((proof): proof is string => typeof proof === 'string' && FORM.test(proof))
}

/** For everything that is asked of the server. */
export function proofHeaders(): Record<string, string> {
  const all = proofs()
  return all.length > 0 ? { [PROOF_HEADER]: all.join(', ') } : {}
}

/** For a WebSocket, on which a page can set no headers. */
export function proofProtocols(): string[] {
  return proofs().map((proof) => OFFERED + proof)
}

/** Keeps what the answer to a sign-in has of it. Throws, if the browser keeps nothing. */
export async function storeProof(answer: unknown): Promise<void> {
  const { proof, session } = (answer ?? {}) as { proof?: unknown; session?: unknown }
  // Whoever was here already is not given another.
  if (typeof proof !== 'string') return
  if (!writeStored(NAMES[typeof session === 'string' ? 1 : 0], proof)) throw new ProofNotStored()
  await copyProofForWorker()
}

/** Signed out, here by a link to one session or as oneself. */
export async function removeProof(ofShare: boolean): Promise<void> {
  writeStored(NAMES[ofShare ? 1 : 0], null)
  await copyProofForWorker()
}

/** What the service worker finds is what is kept. Without it only a push subscription that ends cannot be renewed unseen. */
export async function copyProofForWorker(): Promise<void> {
  if (typeof caches === 'undefined') return
  try {
    const cache = await caches.open(CACHE)
    const all = proofs()
    if (all.length > 0) await cache.put(PLACE, new Response(all.join(', ')))
    else await cache.delete(PLACE)
  } catch {
    // A browser that keeps nothing here has no worker to find it either.
  }
}

/** Calls when another tab has signed in. */
export function onProofStored(listener: () => void): void {
  addEventListener('storage', (event: StorageEvent) => {
    if (event.newValue !== null && NAMES.some((name) => event.key === `ropewalk.${name}`)) listener()
  })
}
