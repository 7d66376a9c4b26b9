// The review of one session while its changes are on screen: the server's list, decisions, and their requests.
//
// One list is asked for at a time. A list that was asked for before a decision would show the past, so it is
// thrown away and asked for again; whatever else happens (a tool ends, a turn ends, another person decides)
// only says that the list is old.

import { computed, signal } from '@preact/signals'
import { errorText } from '../lib/toast'
import { asSentence } from '../lib/format'
import type { Answered, Diff, Hunk, Request } from '../wire'
import { isSameHunk, markFiles, reviewProgress, reconcileDecisions, UNDO_GRACE_MS, type HunkDecision } from './decisions'

/** Edits come in bursts; the list is asked for no more often than this. */
const SETTLE_MS = 600

/** What a person is told once, beside the changes. */
export interface ReviewMessage {
  tone: 'info' | 'bad'
  text: string
}

type Changes = Extract<Answered, { is: 'changes' }>
/** The part of the connection that a review needs. */
export type SendRequest = (request: Request) => Promise<Answered>

export class ChangeReview {
  readonly files = signal<Diff[] | null>(null)
  readonly decisions = signal<HunkDecision[]>([])
  readonly message = signal<ReviewMessage | null>(null)
  /** A turn runs, or waits: what is undone now is undone after it. */
  readonly busy = signal(false)
  /** The session's; files below it are named from there. */
  readonly folder = signal('')
  readonly markedFiles = computed(() => markFiles(this.files.value ?? [], this.decisions.value, this.folder.value))
  readonly progress = computed(() => reviewProgress(this.markedFiles.value))
  private timer: ReturnType<typeof setTimeout> | undefined
  /** When the list is asked for next; what is stirred meanwhile does not put it off. */
  private due = Infinity
  private asking = false
  /** Rises with every decision: a list that was asked for under an older one is out of date. */
  private generation = 0
  private closed = false
  /** What is said is about a list that could not be had, and is over when there is one. */
  private reportsLoadError = false

  constructor(readonly session: string, private readonly ask: SendRequest) {}

  close(): void {
    this.closed = true
    clearTimeout(this.timer)
  }

  /** Something may have changed. */
  reloadSoon(afterMs = SETTLE_MS): void {
    const due = Date.now() + afterMs
    if (this.closed || due >= this.due) return
    clearTimeout(this.timer)
    this.due = due
    this.timer = setTimeout(() => void this.load(), afterMs)
  }

  async load(): Promise<void> {
    this.due = Infinity
    if (this.asking) return this.reloadSoon()
    this.asking = true
    const generation = this.generation
    try {
      const { files } = (await this.ask({ do: 'changes', session: this.session })) as Changes
      if (generation !== this.generation) this.reloadSoon()
      else this.applyList(files)
    } catch (error) {
      this.report('bad', error)
      this.reportsLoadError = true
    } finally {
      this.asking = false
    }
  }

  private applyList(files: Diff[]): void {
    const { decisions, failed } = reconcileDecisions(files, this.decisions.value, !this.busy.value, Date.now())
    this.files.value = files
    this.decisions.value = decisions
    if (this.reportsLoadError) this.message.value = null
    this.reportsLoadError = false
    if (failed.length > 0) this.message.value = { tone: 'bad', text: 'A change could not be undone. The session shows why.' }
    if (decisions.some(({ mark }) => mark === 'undoing')) this.reloadSoon(this.busy.value ? 4 * UNDO_GRACE_MS : UNDO_GRACE_MS)
  }

  /** A hunk, or with none everything that is listed of the file, is as it should be. */
  async keep(path: string, hunk: Hunk | null): Promise<void> {
    const taken = this.decide(path, hunk, 'keeping')
    await this.oneByOne(taken, async (one) => {
      await this.ask({ do: 'keep', session: this.session, path, hunk: await this.idOf(one, taken[0] !== one) })
      this.setMark([one], 'kept')
    })
  }

  async revert(path: string, hunk: Hunk | null): Promise<void> {
    const taken = this.decide(path, hunk, 'undoing')
    await this.oneByOne(taken, async (one) => void await this.ask({ do: 'revert', session: this.session, path, hunk: one.hunk.id }))
  }

  /** Each by its own id: the file as a whole may have more by now than anybody was shown. */
  private async oneByOne(taken: HunkDecision[], act: (one: HunkDecision) => Promise<void>): Promise<void> {
    for (const [at, one] of taken.entries()) {
      try {
        await act(one)
      } catch (error) {
        this.refused(taken.slice(at), error)
        break
      }
    }
    if (taken.length > 0) this.reloadSoon()
  }

  /** Hunks that say the same have ids that hold only until one of them is decided; then the list has new ones. */
  private async idOf({ path, hunk }: HunkDecision, mayDiffer: boolean): Promise<string | null> {
    const alike = this.files.value?.find((diff) => diff.path === path)?.hunks.filter(({ lines }) => lines.join('\n') === hunk.lines.join('\n')) ?? []
    if (!mayDiffer || alike.length < 2) return hunk.id
    const { files } = (await this.ask({ do: 'changes', session: this.session })) as Changes
    return files.find((diff) => diff.path === path)?.hunks.find((one) => isSameHunk(one, hunk))?.id ?? hunk.id
  }

  /** One file after the other, so that a refusal is about one file. */
  async keepAll(): Promise<void> {
    for (const { diff, mark } of this.markedFiles.value) if (mark === 'open') await this.keep(diff.path, null)
  }

  private decide(path: string, hunk: Hunk | null, mark: 'keeping' | 'undoing'): HunkDecision[] {
    const file = this.markedFiles.value.find(({ diff }) => diff.path === path)
    const open = file?.hunks.filter((one) => one.mark === 'open' && (hunk === null || isSameHunk(one.hunk, hunk))) ?? []
    const taken = open.map(({ hunk }): HunkDecision => ({ path, hunk, mark, at: Date.now() }))
    this.generation += 1
    this.message.value = null
    this.decisions.value = [...this.decisions.value, ...taken]
    return taken
  }

  private setMark(taken: HunkDecision[], mark: HunkDecision['mark']): void {
    this.generation += 1
    this.decisions.value = this.decisions.value.map((one) => (taken.includes(one) ? { ...one, mark } : one))
  }

  private refused(taken: HunkDecision[], error: unknown): void {
    this.generation += 1
    this.decisions.value = this.decisions.value.filter((one) => !taken.includes(one))
    this.report('bad', error)
  }

  private report(tone: ReviewMessage['tone'], error: unknown): void {
    this.reportsLoadError = false
    if (!this.closed) this.message.value = { tone, text: asSentence(errorText(error)) }
  }
}
