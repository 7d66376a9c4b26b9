// How rows stand under each other: which are shown alone, which are folded into one line, which belong
// inside another. Plain data from plain data, so that it can be tested.

import type { Row } from '../wire'

export type Block =
  | { is: 'row'; id: number }
  /** What a finished turn did between two things it said. */
  | { is: 'group'; id: number; ids: number[]; actions: number; files: number; failed: number }

export interface Layout {
  blocks: Block[]
  /** Rows inside the row of a call: what its sub-agent did. */
  inside: ReadonlyMap<number, readonly number[]>
}

/** Fewer actions than this are not worth a fold. */
const FOLD_MIN = 2

export function layoutRows(rows: readonly Row[]): Layout {
  const here = new Set(rows.map((row) => row.id))
  const finished = new Set<number>()
  const inside = new Map<number, number[]>()
  for (const row of rows) {
    if (row.is === 'ended' && row.turn !== null) finished.add(row.turn)
    if (row.under !== null && here.has(row.under)) push(inside, row.under, row.id)
  }
  const blocks: Block[] = []
  let run: Row[] = []
  const close = () => {
    blocks.push(...folded(run))
    run = []
  }
  for (const row of rows) {
    if (row.under !== null && here.has(row.under)) continue
    const quiet = row.turn !== null && finished.has(row.turn) && (row.is === 'tool' || row.is === 'thought' || row.is === 'plan')
    if (quiet && (run.length === 0 || run[0]?.turn === row.turn)) {
      run.push(row)
      continue
    }
    close()
    if (quiet) run.push(row)
    else blocks.push({ is: 'row', id: row.id })
  }
  close()
  return { blocks, inside }
}

function folded(run: readonly Row[]): Block[] {
  const tools = run.filter((row) => row.is === 'tool')
  const first = run[0]
  if (!first || tools.length < FOLD_MIN) return run.map((row) => ({ is: 'row', id: row.id }))
  const files = new Set(tools.flatMap((row) => row.diffs.map((diff) => diff.path)))
  const failed = tools.filter((row) => row.state === 'failed' || row.state === 'refused').length
  return [{ is: 'group', id: first.id, ids: run.map((row) => row.id), actions: tools.length, files: files.size, failed }]
}

function push(map: Map<number, number[]>, key: number, value: number): void {
  const list = map.get(key)
  if (list) list.push(value)
  else map.set(key, [value])
}

/** The same layout, with everything of the one before that has not changed: who shows it need not be asked again. */
export function reuseBlocks(before: Layout | null, next: Layout): Layout {
  if (!before) return next
  const known = new Map(before.blocks.map((block) => [keyOf(block), block]))
  const inside = new Map([...next.inside].map(([id, ids]) => {
    const was = before.inside.get(id)
    return [id, was && `${was}` === `${ids}` ? was : ids]
  }))
  return { blocks: next.blocks.map((block) => known.get(keyOf(block)) ?? block), inside }
}

const keyOf = (block: Block) => JSON.stringify(block)
