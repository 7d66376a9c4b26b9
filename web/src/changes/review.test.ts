import { describe, expect, test, vi } from 'vitest'
import type { Answered, Diff, Hunk, Request } from '../wire'
import { Desk } from './desk'
import { lay, neighbour, progress, remark, settle, UNDO_GRACE_MS, type Decision, type MarkedFile } from './review'

const hunk = (id: string, at = 1, text = id): Hunk => ({ id, old: at, new: at, lines: [`+${text}`] })
const file = (path: string, ...hunks: Hunk[]): Diff => ({ path, status: 'changed', added: hunks.length, removed: 0, hunks, more: 0 })
const picture: Diff = { path: 'p.png', status: 'opaque', added: 0, removed: 0, hunks: [], more: 0 }
const decided = (path: string, of: Hunk, mark: Decision['mark'], at = 0): Decision => ({ path, hunk: of, mark, at })

/** What is shown, in short. */
function view(files: Diff[], decisions: Decision[]): string[] {
  return lay(files, decisions, '').map(({ diff, hunks, mark }) => `${diff.path} ${mark}: ${hunks.map((one) => `${one.hunk.id}=${one.mark}`).join(' ')}`)
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
    expect(progress(lay([picture, file('a', hunk('1'), hunk('2', 9))], [decided('a', hunk('1'), 'kept')], ''))).toEqual({ reviewed: 1, total: 3 })
  })

  test('takes an undo for done when it is no longer listed, and for failed when it is listed after its turn', () => {
    const undoing = decided('a', hunk('1'), 'undoing', 0)
    const listed = [file('a', hunk('1'))]
    expect(settle([], [undoing], true, 1).decisions[0]?.mark).toBe('undone')
    expect(settle(listed, [undoing], false, 10 * UNDO_GRACE_MS).decisions[0]?.mark).toBe('undoing')
    expect(settle(listed, [undoing], true, 1).decisions[0]?.mark).toBe('undoing')
    expect(settle(listed, [undoing], true, UNDO_GRACE_MS)).toEqual({ decisions: [], failed: [undoing] })
  })

  test('opens again what was kept and then changed again', () => {
    expect(settle([file('a', hunk('1'))], [decided('a', hunk('1'), 'kept')], true, 1).decisions).toEqual([])
  })

  test('walks through what is open, across files and around the end', () => {
    const laid = lay([file('a', hunk('1', 1), hunk('2', 5)), file('b', hunk('3'))], [decided('a', hunk('2', 5), 'kept')], '')
    const [a, b] = laid as [MarkedFile, MarkedFile]
    expect(neighbour(laid, a, null, 1)?.hunk.id).toBe('1')
    expect(neighbour(laid, a, hunk('1', 1), 1)?.hunk.id).toBe('3')
    expect(neighbour(laid, b, hunk('3'), 1)?.hunk.id).toBe('1')
    expect(neighbour(laid, a, hunk('1', 1), -1)?.hunk.id).toBe('3')
    expect(neighbour([], a, null, 1)).toBeNull()
  })

  test('names files from the session’s folder, and others from the root', () => {
    const files = [file('/home/me/app/src/a.rs', hunk('1')), file('/home/me/application/b.rs', hunk('2'))]
    expect(lay(files, [], '/home/me/app').map(({ name, diff }) => [name, diff.path])).toEqual([
      ['/home/me/application/b.rs', '/home/me/application/b.rs'],
      ['src/a.rs', '/home/me/app/src/a.rs'],
    ])
  })

  test('a remark names the line that changed', () => {
    const of: Hunk = { id: '1', old: 10, new: 12, lines: [' a', ' b', '-c', '+d'] }
    expect(remark('src/a.rs', of, ' rename this ')).toBe('src/a.rs:14: rename this')
  })
})

/** A server with one file; what it was asked, in order. */
function world(refuse: string | null = null) {
  let files = [file('a', hunk('1', 1), hunk('2', 5))]
  const asked: string[] = []
  const ask = async (request: Request): Promise<Answered> => {
    asked.push(request.do)
    if (request.do === 'changes') return { is: 'changes', files }
    if (refuse) throw new Error(refuse)
    if (request.do === 'keep') files = files.map((one) => ({ ...one, hunks: one.hunks.filter(({ id }) => request.hunk !== null && id !== request.hunk) })).filter((one) => one.hunks.length > 0)
    return { is: 'done' }
  }
  return { desk: new Desk('s', ask), asked }
}

const shown = (desk: Desk) => view(desk.files.value ?? [], desk.decisions.value)

describe('a desk', () => {
  test('keeps a hunk, and goes on with the server’s list', async () => {
    const { desk, asked } = world()
    await desk.load()
    const keeping = desk.keep('a', hunk('1', 1))
    expect(shown(desk)).toEqual(['a open: 1=keeping 2=open'])
    await keeping
    await desk.load()
    expect(shown(desk)).toEqual(['a open: 1=kept 2=open'])
    expect(desk.progress.value).toEqual({ reviewed: 1, total: 2 })
    expect(asked).toEqual(['changes', 'keep', 'changes'])
    desk.close()
  })

  test('throws a list away that was asked for before a decision', async () => {
    const { desk } = world()
    await desk.load()
    const old = desk.load()
    await desk.keep('a', null)
    await old
    expect(shown(desk)).toEqual(['a kept: 1=kept 2=kept'])
    desk.close()
  })

  test('asks once for a burst of changes, and a burst that goes on does not put it off', async () => {
    vi.useFakeTimers()
    const { desk, asked } = world()
    for (let count = 0; count < 15; count++) {
      desk.stir()
      await vi.advanceTimersByTimeAsync(100)
    }
    desk.close()
    vi.useRealTimers()
    expect(asked).toEqual(['changes', 'changes'])
  })

  test('a refusal opens the hunk again, and says why', async () => {
    const { desk } = world('The file has changed since: look again.')
    await desk.load()
    await desk.revert('a', hunk('1', 1))
    expect(shown(desk)).toEqual(['a open: 1=open 2=open'])
    expect(desk.word.value).toEqual({ tone: 'bad', text: 'The file has changed since: look again.' })
    desk.close()
  })
})
