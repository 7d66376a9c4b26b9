import { expect, test, vi } from 'vitest'

test('what was to be shown with a frame that never comes is taken in when the page hides', async () => {
  vi.useFakeTimers()
  let visibility = 'visible'
  let changed = () => {}
  const frames: (() => void)[] = []
  vi.stubGlobal('document', { get visibilityState() { return visibility }, addEventListener: (_: string, run: () => void) => { changed = run } })
  vi.stubGlobal('requestAnimationFrame', (run: () => void) => frames.push(run))
  vi.stubGlobal('performance', { now: () => 1_000 })
  const { atFlush, startFlush } = await import('./flush')
  startFlush()
  let seen = 0
  atFlush(() => { seen += 1 })
  expect([seen, frames.length]).toEqual([0, 1])
  visibility = 'hidden'
  changed()
  vi.runAllTimers()
  expect(seen).toBe(1)
  // The frame comes after all, when somebody looks again; there is nothing left for it.
  frames[0]?.()
  atFlush(() => { seen += 1 })
  vi.runAllTimers()
  expect(seen).toBe(2)
  vi.useRealTimers()
})
