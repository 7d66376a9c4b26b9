// When a link or a token ends, as people choose it.

export type Expiry = 'hour' | 'day' | 'week' | 'date' | 'never'

const HOUR_MS = 3_600_000
const LENGTHS: Partial<Record<Expiry, number>> = { hour: HOUR_MS, day: 24 * HOUR_MS, week: 7 * 24 * HOUR_MS }

/** In milliseconds since 1970. Nothing for what never ends, and for a date that is none or is over. */
export function expiryTime(end: Expiry, date: string, now: number): number | null {
  const length = LENGTHS[end]
  if (length !== undefined) return now + length
  if (end === 'never') return null
  // A day counts until it is over, by this device's clock.
  const parts = /^(\d{4})-(\d{2})-(\d{2})$/.exec(date)?.slice(1).map(Number)
  if (!parts) return null
  const [year = 0, month = 1, day = 1] = parts
  const last = new Date(year, month - 1, day, 23, 59, 59, 999)
  if (last.getMonth() !== month - 1) return null
  return last.getTime() > now ? last.getTime() : null
}

/** What a field for dates takes as the day of a moment. */
export function dateInputValue(moment: number): string {
  const date = new Date(moment)
  return [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, '0')).join('-')
}
