import { expect, test } from 'vitest'
import { isLoopback } from './add-device'
import { nextMorning } from './next-morning'
import { qrPath } from './qr-code'

test('a code is drawn as runs of its dark modules, inside a quiet zone', () => {
  expect(qrPath(['1101', '0000', '0111'])).toBe('M4 4h2v1h-2zM7 4h1v1h-1zM5 6h3v1h-3z')
})

test('morning is today before eight, else tomorrow', () => {
  const at = (...when: [number, number, number, number, number]) => new Date(...when)
  expect(nextMorning(at(2026, 10, 16, 3, 30))).toBe(at(2026, 10, 16, 8, 0).getTime())
  expect(nextMorning(at(2026, 10, 16, 8, 0))).toBe(at(2026, 10, 17, 8, 0).getTime())
  expect(nextMorning(at(2026, 11, 31, 23, 0))).toBe(at(2027, 0, 1, 8, 0).getTime())
})

test('an address of this machine only is no use to a phone', () => {
  for (const url of ['http://127.0.0.1:5173/pair#x', 'http://localhost:1/pair', 'http://[::1]:2/pair']) expect(isLoopback(url), url).toBe(true)
  for (const url of ['https://192.168.1.2:5173/pair#x', 'https://rope.example/pair', 'nonsense']) expect(isLoopback(url), url).toBe(false)
})
