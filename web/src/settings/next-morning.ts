// When a night's rest ends, by this device's clock.

const MORNING_HOUR = 8

/** In milliseconds since 1970. Before that hour it is today's morning. */
export function nextMorning(from: Date): number {
  const morning = new Date(from)
  morning.setHours(MORNING_HOUR, 0, 0, 0)
  if (morning <= from) morning.setDate(morning.getDate() + 1)
  return morning.getTime()
}
