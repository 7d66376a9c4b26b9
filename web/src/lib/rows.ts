// The rows of one session: ordered by id, each its own signal, so that a change paints one row.
//
// A view frame is applied whole: rows replace rows of the same id, appends add to text. What the frame
// says twice does no harm, because both carry the position (`rev`) of the change.

import { signal, type Signal } from '@preact/signals'
import type { Append, Row } from '../wire'

/** Rows that are held at most; beyond it the end that is farther from the reader goes. */
export const HELD_MAX = 1_200

/** What a row holds at most, whatever is added to it; the server has the same limits. */
const TEXT_CHARS_MAX = 40 << 10
const OUTPUT_CHARS_MAX = 12 << 10

export class Rows {
  /** Ids in order. Changes only when rows come or go. */
  readonly ids = signal<readonly number[]>([])
  /** There are rows on the server before the first one here. */
  readonly earlier = signal(false)
  /** The newest rows were let go, because somebody reads far back: `reset` brings them. */
  readonly cut = signal(false)
  /** Counts changes of rows whose kind or end matters for how turns fold. */
  readonly shape = signal(0)
  private readonly byId = new Map<number, Signal<Row>>()

  get(id: number): Signal<Row> | undefined {
    return this.byId.get(id)
  }

  get last(): number {
    return this.ids.peek().at(-1) ?? 0
  }

  reset(rows: readonly Row[], earlier: boolean): void {
    const wanted = new Set(rows.map((row) => row.id))
    for (const id of this.byId.keys()) if (!wanted.has(id)) this.byId.delete(id)
    this.cut.value = false
    this.earlier.value = earlier
    this.ids.value = []
    this.put(rows)
  }

  /** New and changed rows. Rows newer than a cut are not taken, nor, but for a page of them, older ones: there would be a gap. */
  put(rows: readonly Row[], isPage = false): void {
    const begin = isPage || !this.earlier.peek() ? 0 : (this.ids.peek()[0] ?? 0)
    const fresh: number[] = []
    let reshaped = false
    for (const row of rows) {
      const known = this.byId.get(row.id)
      if (known) {
        if (row.rev < known.peek().rev) continue
        reshaped ||= shapeOf(known.peek()) !== shapeOf(row)
        known.value = row
      } else if (row.id >= begin && !(this.cut.peek() && row.id > this.last)) {
        this.byId.set(row.id, signal(row))
        fresh.push(row.id)
      }
    }
    const missing = rows.filter((row) => this.byId.has(row.id)).map((row) => row.id)
    this.order(this.ids.peek().length === 0 ? missing : fresh)
    if (reshaped) this.shape.value += 1
  }

  append({ row: id, rev, text }: Append): void {
    const known = this.byId.get(id)
    if (!known || rev <= known.peek().rev) return
    const row = known.peek()
    if (row.is === 'said' || row.is === 'thought') known.value = { ...row, rev, ...fromStart(row, text) }
    else if (row.is === 'tool') known.value = { ...row, rev, ...fromEnd(row, text) }
  }

  /** A page of rows before the first one. */
  prepend(rows: readonly Row[], earlier: boolean): void {
    this.put(rows, true)
    this.earlier.value = earlier
    this.bound()
  }

  /** Lets the newest rows go, for a reader far from the end. */
  bound(): void {
    const ids = this.ids.peek()
    if (ids.length <= HELD_MAX) return
    for (const id of ids.slice(HELD_MAX)) this.byId.delete(id)
    this.ids.value = ids.slice(0, HELD_MAX)
    this.cut.value = true
  }

  /** Lets the oldest rows go, for a reader at the end. */
  trim(count: number): void {
    const ids = this.ids.peek()
    if (ids.length <= count) return
    for (const id of ids.slice(0, ids.length - count)) this.byId.delete(id)
    this.ids.value = ids.slice(ids.length - count)
    this.earlier.value = true
  }

  private order(fresh: number[]): void {
    if (fresh.length === 0) return
    const ids = this.ids.peek()
    fresh.sort((a, b) => a - b)
    const first = fresh[0] ?? 0
    if (ids.length === 0 || first > (ids.at(-1) ?? 0)) this.ids.value = [...ids, ...fresh]
    else this.ids.value = [...new Set([...ids, ...fresh])].sort((a, b) => a - b)
  }
}

/** Text keeps its beginning, output its end; what goes beyond is counted, and can be asked for. */
function fromStart(row: { text: string; more: number }, text: string): { text: string; more: number } {
  const all = row.text + text
  return all.length <= TEXT_CHARS_MAX ? { text: all, more: row.more } : { text: all.slice(0, TEXT_CHARS_MAX), more: row.more + all.length - TEXT_CHARS_MAX }
}

function fromEnd(row: { output: string; more: number }, text: string): { output: string; more: number } {
  const all = row.output + text
  if (all.length <= OUTPUT_CHARS_MAX * 2) return { output: all, more: row.more }
  const line = all.indexOf('\n', all.length - OUTPUT_CHARS_MAX)
  const from = line < 0 ? all.length - OUTPUT_CHARS_MAX : line + 1
  return { output: all.slice(from), more: row.more + from }
}

/** What decides how a row is grouped with others. */
function shapeOf(row: Row): string {
  return row.is === 'tool' ? `tool ${row.state} ${row.under}` : row.is
}
