// What exactly would be allowed: the command, the change, the address. Every character can be seen, and
// what is not shown says so and can be shown.

import { useState } from 'preact/hooks'
import type { AskView, Diff as DiffData } from '../wire'
import { Diff } from '../changes/diff'
import { hello } from '../lib/connection'
import { loadFullRow } from '../lib/watched-session'
import { toast, errorText } from '../lib/toast'
import { pluralize, visible } from '../lib/format'

const SHOWN_CHARS = 4_000

export function Preview({ ask }: { ask: AskView }) {
  const command = ask.kind === 'execute'
  const same = ask.text.trim() === '' || ask.text.trim() === ask.subject.trim()
  return (
    <div class="preview">
      {ask.subject !== '' && <ExactText text={ask.subject} label={command ? 'Command' : ask.kind === 'fetch' ? 'Address' : 'Action'} prompt={command} />}
      {!same && <ExactText text={ask.text} label="Details" />}
      <Diffs ask={ask} />
      <dl class="facts">
        <div><dt>Folder</dt><dd><code>{visible(ask.folder)}</code></dd></div>
        {hello.value && <div><dt>Sandbox</dt><dd>{hello.value.sandbox}</dd></div>}
      </dl>
      {hasInput(ask) && (
        <details class="input">
          <summary>Full tool input</summary>
          <ExactText text={prettyJson(ask.input)} label="Input" />
        </details>
      )}
    </div>
  )
}

export function ExactText({ text, label, prompt = false }: { text: string; label: string; prompt?: boolean }) {
  const [all, setAll] = useState(false)
  const cut = !all && text.length > SHOWN_CHARS
  return (
    <div class="exact">
      <pre tabIndex={0} aria-label={label} class={prompt ? 'command' : ''}>{visible(cut ? text.slice(0, SHOWN_CHARS) : text)}</pre>
      {cut && <button type="button" class="plain" onClick={() => setAll(true)}>Show all ({pluralize(text.length - SHOWN_CHARS, 'more character')})</button>}
    </div>
  )
}

function Diffs({ ask }: { ask: AskView }) {
  const [full, setFull] = useState<DiffData[] | null>(null)
  const diffs = full ?? ask.diffs
  const missing = diffs.reduce((sum, diff) => sum + diff.more, 0)
  const showAll = async () => {
    try {
      const row = ask.row === null ? null : await loadFullRow(ask.session, ask.row)
      if (row?.is === 'tool' && row.diffs.length > 0) setFull(row.diffs)
      else toast('The rest of this change is not available here. Check the file on the computer.', true)
    } catch (error) {
      toast(errorText(error), true)
    }
  }
  return (
    <>
      {diffs.map((diff) => <Diff key={diff.path} diff={diff} compact={diffs.length === 1} />)}
      {missing > 0 && (
        <p class="cut">
          {pluralize(missing, 'line')} of this change {missing === 1 ? 'is' : 'are'} not shown.
          {ask.row !== null && !full && <button type="button" class="plain" onClick={() => void showAll()}>Show all</button>}
        </p>
      )}
    </>
  )
}

function hasInput(ask: AskView): boolean {
  return ask.input !== '' && ask.input !== '{}' && ask.input !== 'null'
}

export function prettyJson(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2)
  } catch {
    return json
  }
}
