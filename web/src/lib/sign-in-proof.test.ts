// What proves a sign-in: kept by kind, shown where the server looks, and not lost with what else is forgotten.

import { beforeEach, expect, test, vi } from 'vitest'
import { fakeBrowser, FakeSocket, last, store } from '../testing/socket'

const OWN = 'a'.repeat(43)
const SHARED = 'b'.repeat(43)

beforeEach(() => {
  vi.resetModules()
  fakeBrowser()
})

/** What the service worker would find. */
function fakeCaches(): Map<string, string> {
  const found = new Map<string, string>()
  const cache = {
    put: async (place: string, response: Response) => void found.set(place, await response.text()),
    delete: async (place: string) => found.delete(place),
  }
  vi.stubGlobal('caches', { open: async () => cache })
  return found
}

test('a sign-in and a shared session each have a proof, and both are shown', async () => {
  const copied = fakeCaches()
  const { removeProof, proofHeaders, proofProtocols, storeProof } = await import('./sign-in-proof')
  expect([proofHeaders(), proofProtocols()]).toEqual([{}, []])
  await storeProof({ proof: OWN, device: 'd' })
  expect(proofHeaders()).toEqual({ 'x-ropewalk-proof': OWN })
  await storeProof({ proof: SHARED, session: 's1' })
  // Who was here already gets no other.
  await storeProof({ session: 's1' })
  await storeProof(null)
  expect(proofHeaders()).toEqual({ 'x-ropewalk-proof': `${OWN}, ${SHARED}` })
  expect(proofProtocols()).toEqual([`proof.${OWN}`, `proof.${SHARED}`])
  expect(copied.get('/proof')).toBe(`${OWN}, ${SHARED}`)
  await removeProof(true)
  expect([proofProtocols(), copied.get('/proof')]).toEqual([[`proof.${OWN}`], OWN])
  await removeProof(false)
  expect([proofHeaders(), copied.size]).toEqual([{}, 0])
})

test('what is no proof is not sent', async () => {
  const { proofHeaders, storeProof } = await import('./sign-in-proof')
  for (const wrong of ['x', 'a b'.repeat(20), 'a,'.repeat(20), 'a'.repeat(200)]) {
    await storeProof({ proof: wrong })
    expect(proofHeaders()).toEqual({})
  }
})

test('a browser that keeps nothing says so instead of being signed out at once', async () => {
  const { storeProof, ProofNotStored } = await import('./sign-in-proof')
  vi.stubGlobal('localStorage', { setItem: () => { throw new Error('full') }, removeItem: () => {}, getItem: () => null })
  await expect(storeProof({ proof: OWN })).rejects.toBeInstanceOf(ProofNotStored)
})

test('whoever is signed out by the server keeps what a newer sign-in proves', async () => {
  const [{ storeProof, proofHeaders }, { forgetContent, writeStored }] = [await import('./sign-in-proof'), await import('./browser-storage')]
  writeStored('draft.s1', 'words')
  await storeProof({ proof: OWN })
  forgetContent()
  expect([proofHeaders(), store.get('ropewalk.draft.s1')]).toEqual([{ 'x-ropewalk-proof': OWN }, undefined])
  await storeProof({ proof: SHARED })
  expect(proofHeaders()).toEqual({ 'x-ropewalk-proof': SHARED })
})

test('the line shows it as a sub-protocol, and asks with it why it was refused', async () => {
  const offered: unknown[] = []
  vi.stubGlobal('WebSocket', class extends FakeSocket { constructor(_: string, protocols: unknown) { super(); offered.push(protocols) } })
  const asked: unknown[] = []
  vi.stubGlobal('fetch', async (path: string, options: { headers: unknown }) => {
    asked.push([path, options.headers])
    return { status: 401, json: async () => ({ error: 'sign_in_again' }) }
  })
  const { storeProof } = await import('./sign-in-proof')
  await storeProof({ proof: OWN })
  const line = await import('./connection')
  line.startConnection()
  expect(offered).toEqual([['ropewalk.v1', `proof.${OWN}`]])
  last().close()
  await vi.waitFor(() => expect(line.connectionState.value).toEqual({ is: 'signedOut', again: true }))
  expect(asked).toEqual([['/ui/socket', { 'x-ropewalk-proof': OWN }]])
})
