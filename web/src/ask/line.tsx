// A decision in a few lines, for lists. What is of low risk and wholly shown can be answered here; the
// rest has to be looked at first.

import type { AskView } from '../wire'
import { cards } from '../lib/board'
import { askPath } from '../lib/router'
import { askTitle, riskWord, titleOf, visible } from '../lib/words'
import { Icon, kindIcon } from '../ui/icons'
import { answer, may, progressOf } from './answer'
import { ProgressLine } from './card'

const BRIEF_CHARS = 160

export function AskLine({ ask }: { ask: AskView }) {
  const card = cards.value.get(ask.session)
  const brief = ask.question?.text ?? (ask.subject || ask.title)
  const here = ask.risk === 'low' && !ask.question && ask.diffs.length === 0 && brief.length <= BRIEF_CHARS && may('approver')
  return (
    <div class={`ask-line risk-${ask.question ? 'none' : ask.risk}`} data-ask={ask.ask}>
      <a href={askPath(ask.session, ask.ask)} class="ask-link">
        <span class="ask-line-head"><Icon name={ask.question ? 'question' : kindIcon(ask.kind)} size={17} /><strong>{askTitle(ask)}</strong>
          {!ask.question && <span class="risk-word">{riskWord(ask.risk)}</span>}</span>
        <span class={ask.question ? 'ask-brief' : 'ask-brief exactly'}>{visible(brief.length > BRIEF_CHARS ? `${brief.slice(0, BRIEF_CHARS)}…` : brief)}</span>
        <span class="soft">{card ? titleOf(card) : ask.folder}</span>
      </a>
      <div class="ask-line-buttons">
        {here && <>
          <button type="button" class="small allow" onClick={() => void answer(ask, 'allowOnce')}>Allow once</button>
          <button type="button" class="small" onClick={() => void answer(ask, 'denyOnce')}>Deny</button>
        </>}
        {!here && <a class="button small" href={askPath(ask.session, ask.ask)}>{ask.question ? 'Answer' : 'Review'}</a>}
      </div>
      <ProgressLine progress={progressOf(ask)} />
    </div>
  )
}
