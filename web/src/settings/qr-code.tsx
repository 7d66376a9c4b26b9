// A QR code, drawn from the rows of 0 and 1 that the server sends. Dark on light in both themes: cameras need it so.

/** Empty modules around the code, which the standard asks for. */
const QUIET = 4

export function Qr({ rows, label }: { rows: readonly string[]; label: string }) {
  const size = rows.length + 2 * QUIET
  return (
    <svg class="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={label} shape-rendering="crispEdges">
      <rect width={size} height={size} fill="#fff" />
      <path fill="#000" d={qrPath(rows)} />
    </svg>
  )
}

/** Neighbouring modules of a row are one rectangle, so that no hair lines show between them. */
export function qrPath(rows: readonly string[]): string {
  return rows.flatMap((row, y) => [...row.matchAll(/1+/g)].map((run) => `M${run.index + QUIET} ${y + QUIET}h${run[0].length}v1h-${run[0].length}z`)).join('')
}
