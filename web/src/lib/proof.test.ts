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
  const shelf = {
    put: async (place: string, response: Response) => void found.set(place, await response.text()),
    delete: async (place: string) => found.delete(place),
  }
  vi.stubGlobal('caches', { open: async () => shelf })
  return found
}

test('a sign-in and a shared session each have a proof, and both are shown', async () => {
  const copied = fakeCaches()
  const { dropProof, proofHeaders, proofProtocols, takeProof } = await import('./proof')
  expect([proofHeaders(), proofProtocols()]).toEqual([{}, []])
  await takeProof({ proof: OWN, device: 'd' })
  expect(proofHeaders()).toEqual({ 'x-ropewalk-proof': OWN })
  await takeProof({ proof: SHARED, session: 's1' })
  // Who was here already gets no other.
  await takeProof({ session: 's1' })
  await takeProof(null)
  expect(proofHeaders()).toEqual({ 'x-ropewalk-proof': `${OWN}, ${SHARED}` })
  expect(proofProtocols()).toEqual([`proof.${OWN}`, `proof.${SHARED}`])
  expect(copied.get('/proof')).toBe(`${OWN}, ${SHARED}`)
  await dropProof(true)
  expect([proofProtocols(), copied.get('/proof')]).toEqual([[`proof.${OWN}`], OWN])
  await dropProof(false)
  expect([proofHeaders(), copied.size]).toEqual([{}, 0])
})

test('what is no proof is not sent', async () => {
  const { proofHeaders, takeProof } = await import('./proof')
  for (const wrong of ['x', 'a b'.repeat(20), 'a,'.repeat(20), 'a'.repeat(200)]) {
    await takeProof({ proof: wrong })
    expect(proofHeaders()).toEqual({})
  }
})

test('a browser that keeps nothing says so instead of being signed out at once', async () => {
  const { takeProof, NotKept } = await import('./proof')
  vi.stubGlobal('localStorage', { setItem: () => { throw new Error('full') }, removeItem: () => {}, getItem: () => null })
  await expect(takeProof({ proof: OWN })).rejects.toBeInstanceOf(NotKept)
})

test('whoever is signed out by the server keeps what a newer sign-in proves', async () => {
  const [{ takeProof, proofHeaders }, { forgetContent, keep }] = [await import('./proof'), await import('./keep')]
  keep('draft.s1', 'words')
  await takeProof({ proof: OWN })
  forgetContent()
  expect([proofHeaders(), store.get('ropewalk.draft.s1')]).toEqual([{ 'x-ropewalk-proof': OWN }, undefined])
  await takeProof({ proof: SHARED })
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
  const { takeProof } = await import('./proof')
  await takeProof({ proof: OWN })
  const line = await import('./line')
  line.startLine()
  expect(offered).toEqual([['ropewalk.v1', `proof.${OWN}`]])
  last().close()
  await vi.waitFor(() => expect(line.state.value).toEqual({ is: 'signedOut', again: true }))
  expect(asked).toEqual([['/ui/socket', { 'x-ropewalk-proof': OWN }]])
})
