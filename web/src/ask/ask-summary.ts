// What a line of a list says of a decision, and whether that is all there is to know.

import type { AskView } from '../wire'

const BRIEF_CHARS = 160
const BRIEF_LINES = 6

const exact = (ask: AskView) => ask.question?.text ?? (ask.subject || ask.title)

export function summaryOf(ask: AskView): string {
  const text = exact(ask)
  return text.length > BRIEF_CHARS ? `${text.slice(0, BRIEF_CHARS)}…` : text
}

/** The line shows all that would be allowed: nobody allows what they have not seen. */
export function isFullyShown(ask: AskView): boolean {
  const text = exact(ask)
  const more = ask.text.trim()
  return !ask.question && !isTruncated(ask) && ask.diffs.length === 0 && text.length <= BRIEF_CHARS && text.split('\n').length <= BRIEF_LINES && (more === '' || more === ask.subject.trim())
}

/** Some of what is asked never came here. */
export function isTruncated(ask: AskView): boolean {
  return ask.more > 0
}
