import { describe, expect, test, vi } from 'vitest'
import type { Answered, Diff, Hunk, Request } from '../wire'
import { ChangeReview } from './change-review'
import { markFiles, nextOpenHunk, reviewProgress, commentLine, reconcileDecisions, UNDO_GRACE_MS, type HunkDecision, type MarkedFile } from './decisions'

const hunk = (id: string, at = 1, text = id): Hunk => ({ id, old: at, new: at, lines: [`+${text}`] })
const file = (path: string, ...hunks: Hunk[]): Diff => ({ path, status: 'changed', added: hunks.length, removed: 0, hunks, more: 0 })
const picture: Diff = { path: 'p.png', status: 'opaque', added: 0, removed: 0, hunks: [], more: 0 }
const decided = (path: string, of: Hunk, mark: HunkDecision['mark'], at = 0): HunkDecision => ({ path, hunk: of, mark, at })

/** What is shown, in short. */
function view(files: Diff[], decisions: HunkDecision[]): string[] {
  return markFiles(files, decisions, '').map(({ diff, hunks, mark }) => `${diff.path} ${mark}: ${hunks.map((one) => `${one.hunk.id}=${one.mark}`).join(' ')}`)
}

describe('a review', () => {
  test('shows what was decided beside what is still listed', () => {
    expect(view([file('a', hunk('2', 5))], [decided('a', hunk('1', 1), 'kept')])).toEqual(['a open: 1=kept 2=open'])
    expect(view([], [decided('a', hunk('1'), 'kept'), decided('a', hunk('2', 9), 'undone')])).toEqual(['a mixed: 1=kept 2=undone'])
  })

  test('knows a hunk again when the server names it anew', () => {
    const moved = { ...hunk('new name', 5, 'text'), old: 3 }
    expect(view([file('a', moved)], [decided('a', hunk('old name', 5, 'text'), 'undoing')])).toEqual(['a undoing: new name=undoing'])
  })

  test('counts a file of which nothing is shown as one', () => {
    expect(reviewProgress(markFiles([picture, file('a', hunk('1'), hunk('2', 9))], [decided('a', hunk('1'), 'kept')], ''))).toEqual({ reviewed: 1, total: 3 })
  })

  test('takes an undo for done when it is no longer listed, and for failed when it is listed after its turn', () => {
    const undoing = decided('a', hunk('1'), 'undoing', 0)
    const listed = [file('a', hunk('1'))]
    expect(reconcileDecisions([], [undoing], true, 1).decisions[0]?.mark).toBe('undone')
    expect(reconcileDecisions(listed, [undoing], false, 10 * UNDO_GRACE_MS).decisions[0]?.mark).toBe('undoing')
    expect(reconcileDecisions(listed, [undoing], true, 1).decisions[0]?.mark).toBe('undoing')
    expect(reconcileDecisions(listed, [undoing], true, UNDO_GRACE_MS)).toEqual({ decisions: [], failed: [undoing] })
  })

  test('opens again what was kept and then changed again', () => {
    expect(reconcileDecisions([file('a', hunk('1'))], [decided('a', hunk('1'), 'kept')], true, 1).decisions).toEqual([])
  })

  test('walks through what is open, across files and around the end', () => {
    const laid = markFiles([file('a', hunk('1', 1), hunk('2', 5)), file('b', hunk('3'))], [decided('a', hunk('2', 5), 'kept')], '')
    const [a, b] = laid as [MarkedFile, MarkedFile]
    expect(nextOpenHunk(laid, a, null, 1)?.hunk.id).toBe('1')
    expect(nextOpenHunk(laid, a, hunk('1', 1), 1)?.hunk.id).toBe('3')
    expect(nextOpenHunk(laid, b, hunk('3'), 1)?.hunk.id).toBe('1')
    expect(nextOpenHunk(laid, a, hunk('1', 1), -1)?.hunk.id).toBe('3')
    expect(nextOpenHunk([], a, null, 1)).toBeNull()
  })

  test('names files from the session’s folder, and others from the root', () => {
    const files = [file('/home/me/app/src/a.rs', hunk('1')), file('/home/me/application/b.rs', hunk('2'))]
    expect(markFiles(files, [], '/home/me/app').map(({ name, diff }) => [name, diff.path])).toEqual([
      ['/home/me/application/b.rs', '/home/me/application/b.rs'],
      ['src/a.rs', '/home/me/app/src/a.rs'],
    ])
  })

  test('a comment names the line that changed', () => {
    const of: Hunk = { id: '1', old: 10, new: 12, lines: [' a', ' b', '-c', '+d'] }
    expect(commentLine('src/a.rs', of, ' rename this ')).toBe('src/a.rs:14: rename this')
  })
})

/** A server with one file; what it was asked, in order. */
function world(refuse: string | null = null) {
  let files = [file('a', hunk('1', 1), hunk('2', 5))]
  const asked: string[] = []
  const ask = async (request: Request): Promise<Answered> => {
    asked.push('hunk' in request ? `${request.do} ${request.hunk}` : request.do)
    if (request.do === 'changes') return { is: 'changes', files }
    if (refuse) throw new Error(refuse)
    if (request.do === 'keep') files = files.map((one) => ({ ...one, hunks: one.hunks.filter(({ id }) => request.hunk !== null && id !== request.hunk) })).filter((one) => one.hunks.length > 0)
    return { is: 'done' }
  }
  return { review: new ChangeReview('s', ask), asked }
}

const shown = (review: ChangeReview) => view(review.files.value ?? [], review.decisions.value)

describe('a review', () => {
  test('keeps a hunk, and goes on with the server’s list', async () => {
    const { review, asked } = world()
    await review.load()
    const keeping = review.keep('a', hunk('1', 1))
    expect(shown(review)).toEqual(['a open: 1=keeping 2=open'])
    await keeping
    await review.load()
    expect(shown(review)).toEqual(['a open: 1=kept 2=open'])
    expect(review.progress.value).toEqual({ reviewed: 1, total: 2 })
    expect(asked).toEqual(['changes', 'keep 1', 'changes'])
    review.close()
  })

  test('throws a list away that was asked for before a decision', async () => {
    const { review } = world()
    await review.load()
    const old = review.load()
    await review.keep('a', null)
    await old
    expect(shown(review)).toEqual(['a kept: 1=kept 2=kept'])
    review.close()
  })

  test('keeps and undoes of a file only what it was shown of it', async () => {
    const { review, asked } = world()
    await review.load()
    await review.keepAll()
    review.close()
    const other = world()
    await other.review.load()
    await other.review.revert('a', null)
    other.review.close()
    expect([asked, other.asked]).toEqual([['changes', 'keep 1', 'keep 2'], ['changes', 'revert 1', 'revert 2']])
  })

  test('asks once for a burst of changes, and a burst that goes on does not put it off', async () => {
    vi.useFakeTimers()
    const { review, asked } = world()
    for (let count = 0; count < 15; count++) {
      review.reloadSoon()
      await vi.advanceTimersByTimeAsync(100)
    }
    review.close()
    vi.useRealTimers()
    expect(asked).toEqual(['changes', 'changes'])
  })

  test('a refusal opens the hunk again, and says why', async () => {
    const { review } = world('The file has changed since: look again.')
    await review.load()
    await review.revert('a', hunk('1', 1))
    expect(shown(review)).toEqual(['a open: 1=open 2=open'])
    expect(review.message.value).toEqual({ tone: 'bad', text: 'The file has changed since: look again.' })
    review.close()
  })
})
