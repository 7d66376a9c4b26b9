// The files of a review: what changed in each, and how far its review is.

import { visible } from '../lib/format'
import { Counts } from './diff'
import type { MarkedFile } from './decisions'

interface FileListProps {
  files: MarkedFile[]
  /** The one that is read. */
  open: MarkedFile | null
  /** Without it the entries are no links: whoever shows them opens them. */
  href?: (file: MarkedFile) => string
}

export function FileList({ files, open, href }: FileListProps) {
  const entries = files.map((file) => {
    const path = file.diff.path
    const inside = <Entry file={file} />
    if (!href) return <div class="file-entry" key={path}>{inside}</div>
    return <li key={path}><a class="file-entry" href={href(file)} aria-current={path === open?.diff.path ? 'true' : undefined}>{inside}</a></li>
  })
  return href ? <ul class="file-list">{entries}</ul> : <>{entries}</>
}

/** The name first: its folder is only needed where two are alike. */
function Entry({ file }: { file: MarkedFile }) {
  const cut = file.name.lastIndexOf('/') + 1
  const word = markWord(file)
  return (
    <>
      <span class="file-name">
        <bdi>{visible(file.name.slice(cut))}</bdi>
        {cut > 0 && <span class="file-folder"><bdi>{visible(file.name.slice(0, cut - 1))}</bdi></span>}
      </span>
      <span class="file-side">
        <Counts diff={file.diff} />
        {word && <span class={`file-mark file-mark-${file.mark}`}>{word}</span>}
      </span>
    </>
  )
}

function markWord(file: MarkedFile): string {
  const settled = file.hunks.filter(({ mark }) => mark !== 'open').length
  switch (file.mark) {
    case 'open':
      return settled > 0 ? `${settled} of ${file.hunks.length}` : ''
    case 'keeping':
      return 'Keeping…'
    case 'kept':
      return 'Kept'
    case 'undoing':
      return 'Undoing…'
    case 'undone':
      return 'Undone'
    case 'mixed':
      return 'Reviewed'
  }
}
