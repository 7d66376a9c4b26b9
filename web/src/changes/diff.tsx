import type { Diff as DiffData } from '../wire'

export interface DiffProps {
  diff: DiffData
  split?: boolean
  compact?: boolean
  onKeep?: (hunk: string | null) => void
  onRevert?: (hunk: string | null) => void
}

export function Diff({ diff }: DiffProps) {
  return <pre>{diff.hunks.flatMap((hunk) => hunk.lines).join('\n')}</pre>
}
