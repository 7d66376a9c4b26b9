// The reading position. Somebody at the end follows it; somebody who reads stays on the very pixel,
// whatever arrives below or is loaded above.
//
// Browsers have an anchoring of their own, but not all, and they disagree; it is switched off in the
// style, and this does it: before every change it remembers the first row in view and where it stands,
// and after the change it puts that row back.

import { signal } from '@preact/signals'

/** So close to the end counts as being there. */
const NEAR_PX = 32

export class ReadingPosition {
  /** The end stays in view. */
  readonly following = signal(true)
  /** Something came below while somebody read above. */
  readonly unseen = signal(false)
  private anchors: { node: HTMLElement; top: number }[] = []
  private height = 0
  private ours = -1

  constructor(private readonly scroller: HTMLElement, private readonly list: HTMLElement) {}

  /** The scroller moved: by the reader, unless it was us. */
  moved(): void {
    if (Math.abs(this.scroller.scrollTop - this.ours) < 1) return
    this.ours = -1
    const near = this.gap() <= NEAR_PX
    if (near !== this.following.peek()) this.following.value = near
    if (near) this.unseen.value = false
  }

  before(): void {
    // A reader who has just begun to scroll is not pulled back to the end before the event of it comes.
    if (this.ours >= 0) this.moved()
    this.height = this.scroller.scrollHeight
    this.anchors = this.following.peek() ? [] : this.inView()
  }

  after(): void {
    if (this.following.peek()) return this.toEnd()
    // A row in view can be gone, folded away with its turn; then the next one holds the place.
    const anchor = this.anchors.find(({ node }) => node.isConnected)
    if (anchor) {
      const moved = anchor.node.getBoundingClientRect().top - anchor.top
      if (Math.abs(moved) >= 0.5) this.scrollTo(this.scroller.scrollTop + moved)
    }
    if (this.scroller.scrollHeight > this.height && this.gap() > NEAR_PX) this.unseen.value = true
    this.anchors = []
  }

  toEnd(): void {
    const end = this.scroller.scrollHeight - this.scroller.clientHeight
    if (Math.abs(end - this.scroller.scrollTop) >= 1) this.scrollTo(end)
    this.unseen.value = false
  }

  follow(): void {
    this.following.value = true
    this.toEnd()
  }

  /** Stops following, to look at a row. */
  show(node: HTMLElement): void {
    this.following.value = false
    this.scrollTo(this.scroller.scrollTop + node.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top - 60)
  }

  private scrollTo(top: number): void {
    this.scroller.scrollTop = top
    this.ours = this.scroller.scrollTop
  }

  private gap(): number {
    return this.scroller.scrollHeight - this.scroller.clientHeight - this.scroller.scrollTop
  }

  /** Rows in view from the top, with their places. */
  private inView(): { node: HTMLElement; top: number }[] {
    const edge = this.scroller.getBoundingClientRect().top
    const rows = this.list.children
    let from = 0
    let to = rows.length
    while (from < to) {
      const middle = (from + to) >> 1
      if ((rows[middle]?.getBoundingClientRect().bottom ?? 0) <= edge) from = middle + 1
      else to = middle
    }
    return [...rows].slice(from, from + 12).map((node) => ({ node: node as HTMLElement, top: node.getBoundingClientRect().top }))
  }
}
