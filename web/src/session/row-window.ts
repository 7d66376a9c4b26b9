// Which of the held rows are in the page. A reader at the end has the last ones; one who reads back has
// those around; nobody has all of them, because a phone cannot carry thousands.

import { computed, signal } from '@preact/signals'
import type { Row } from '../wire'
import { atFlush } from '../lib/flush'
import { HELD_MAX } from '../lib/rows'
import { loadEarlier, rewatch, type WatchedSession } from '../lib/watched-session'
import { type Layout, layoutRows, reuseBlocks } from './row-grouping'

/** Rows in the page at most, and what is left when the oldest go. */
export const SHOWN_MAX = 300
const SHOWN_AFTER_TRIM = 220
const FIRST_SHOWN = 120
const STEP = 60
/** Rows that stay in memory behind a reader at the end. */
const HELD_BEHIND = 500

export class RowWindow {
  /** The first row shown; nothing shows from the first one held. */
  private readonly first = signal<number | null>(null)
  /** The last row shown; nothing shows to the end. */
  private readonly last = signal<number | null>(null)
  /** Somebody reads: what is shown stays, and what is too much waits below. */
  private readonly holding = signal(false)
  readonly loading = signal(false)
  private laid: Layout | null = null

  constructor(private readonly watched: WatchedSession) {}

  readonly ids = computed<readonly number[]>(() => {
    const all = this.watched.rows.ids.value
    const from = this.first.value === null ? Math.max(0, all.length - FIRST_SHOWN) : lowerBound(all, this.first.value)
    const to = this.last.value === null ? all.length : lowerBound(all, this.last.value + 1)
    return this.holding.value ? all.slice(from, Math.min(to, from + SHOWN_MAX)) : all.slice(Math.max(from, to - SHOWN_MAX), to)
  })

  readonly layout = computed(() => {
    void this.watched.rows.shape.value
    const rows = this.ids.value.flatMap((id): Row[] => {
      const row = this.watched.rows.get(id)
      return row ? [row.peek()] : []
    })
    this.laid = reuseBlocks(this.laid, layoutRows(rows))
    return this.laid
  })
  readonly inside = computed(() => this.layout.value.inside)

  /** There is something before what is shown. */
  readonly before = computed(() => this.watched.rows.earlier.value || (this.ids.value[0] ?? 0) > (this.watched.rows.ids.value[0] ?? 0))
  /** There is something after what is shown. */
  readonly after = computed(() => this.watched.rows.cut.value || (this.ids.value.at(-1) ?? 0) < this.watched.rows.last)

  /** Shows a page more at the beginning, from memory or from the server. */
  async earlier(): Promise<void> {
    if (this.loading.peek()) return
    const shown = this.ids.peek()
    const held = this.watched.rows.ids.peek()
    const at = lowerBound(held, shown[0] ?? 0)
    if (at === 0) {
      this.loading.value = true
      // What is shown stays where it is while rows come before it.
      if (this.first.peek() === null) this.first.value = shown[0] ?? null
      try {
        await loadEarlier(this.watched)
      } finally {
        this.loading.value = false
      }
    }
    atFlush(() => {
      const all = this.watched.rows.ids.peek()
      const start = Math.max(0, lowerBound(all, shown[0] ?? 0) - STEP)
      this.first.value = all[start] ?? null
      const end = start + SHOWN_MAX
      this.last.value = end < all.length ? (all[end - 1] ?? null) : this.last.peek()
    })
  }

  later(): void {
    atFlush(() => {
      const all = this.watched.rows.ids.peek()
      const end = Math.min(all.length, lowerBound(all, (this.ids.peek().at(-1) ?? 0) + 1) + STEP)
      this.first.value = all[Math.max(0, end - SHOWN_MAX)] ?? null
      this.last.value = end < all.length ? (all[end - 1] ?? null) : null
    })
  }

  toEnd(): void {
    this.holding.value = false
    this.last.value = null
    this.first.value = null
    if (this.watched.rows.cut.peek()) rewatch(this.watched)
  }

  /** The reader follows the end: the oldest rows may go. Gives whether some did. */
  follow(crowded: boolean): boolean {
    if (this.last.peek() !== null || this.after.peek()) return false
    this.holding.value = false
    const shown = this.ids.peek()
    if (this.first.peek() === null && shown.length > 0) this.first.value = shown[0] ?? null
    const keep = crowded ? Math.max(20, Math.floor(shown.length / 2)) : SHOWN_AFTER_TRIM
    if (shown.length <= (crowded ? 20 : SHOWN_MAX - 1)) return false
    this.first.value = shown[shown.length - keep] ?? null
    this.watched.rows.trim(HELD_BEHIND)
    return true
  }

  /** The reader has left the end: what is shown now stays, and new rows wait below. */
  hold(): void {
    const shown = this.ids.peek()
    if (this.first.peek() === null && shown.length > 0) this.first.value = shown[0] ?? null
    this.holding.value = true
    this.bound()
  }

  /** What comes while somebody reads is not held without end: it is asked for when they go there. */
  private bound(): void {
    const { rows } = this.watched
    const all = rows.ids.peek()
    if (all.length <= HELD_MAX) return
    const before = lowerBound(all, this.ids.peek()[0] ?? 0) - STEP
    if (before > 0) rows.trim(all.length - before)
    rows.bound()
  }

  /** Shows a row somewhere in the middle. Gives whether it is there. */
  async reach(row: number, pages: number): Promise<boolean> {
    for (let page = 0; page < pages; page += 1) {
      const held = this.watched.rows.ids.peek()
      if (held.includes(row)) {
        const at = held.indexOf(row)
        this.first.value = held[Math.max(0, at - STEP)] ?? null
        const end = Math.max(0, at - STEP) + SHOWN_MAX
        this.last.value = end < held.length ? (held[end - 1] ?? null) : null
        return true
      }
      if (!this.watched.rows.earlier.peek() || row > (held[0] ?? 0)) return false
      await loadEarlier(this.watched)
    }
    return false
  }
}

/** The place of the first id that is not smaller. */
function lowerBound(ids: readonly number[], id: number): number {
  let from = 0
  let to = ids.length
  while (from < to) {
    const middle = (from + to) >> 1
    if ((ids[middle] ?? 0) < id) from = middle + 1
    else to = middle
  }
  return from
}
