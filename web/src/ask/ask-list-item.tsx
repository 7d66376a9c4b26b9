// A decision in a few lines, for lists. What is of low risk and wholly shown can be answered here; the
// rest has to be looked at first.

import type { AskView } from '../wire'
import { cards } from '../lib/board'
import { offlineMachineOf } from '../lib/hub-state'
import { askPath } from '../lib/router'
import { askTitle, riskLabel, titleOf, visible } from '../lib/format'
import { SessionMachine } from '../list/machines'
import { Icon, kindIcon } from '../ui/icons'
import { answer, hasRole, answerProgressOf } from './answer'
import { summaryOf, isFullyShown } from './ask-summary'
import { ProgressLine, useArmed } from './ask-card'

/** `place` is its place in the list: one that moves takes no press for a moment, it was meant for another. */
export function AskListItem({ ask, place }: { ask: AskView; place: number }) {
  const card = cards.value.get(ask.session)
  const whole = isFullyShown(ask)
  const here = whole && ask.risk === 'low' && hasRole('approver') && !offlineMachineOf(ask.session)
  const armed = useArmed(`${place} ${ask.session} ${ask.ask}`)
  const progress = answerProgressOf(ask)
  const disabled = !armed || (progress !== undefined && progress.is !== 'failed')
  return (
    <div class={`ask-line risk-${ask.question ? 'none' : ask.risk}`} data-ask={ask.ask}>
      <a href={askPath(ask.session, ask.ask)} class="ask-link">
        <span class="ask-line-head"><Icon name={ask.question ? 'question' : kindIcon(ask.kind)} size={17} /><strong>{askTitle(ask)}</strong>
          {!ask.question && <span class="risk-word">{riskLabel(ask.risk)}</span>}</span>
        <span class={`ask-brief ${ask.question ? '' : 'exactly'} ${whole ? 'whole' : ''}`}>{visible(summaryOf(ask))}</span>
        <span class="soft">{card ? titleOf(card) : ask.folder}</span>
        <SessionMachine session={ask.session} />
      </a>
      <div class="ask-line-buttons">
        {here && <>
          <button type="button" class="small allow" disabled={disabled} onClick={() => void answer(ask, 'allowOnce')}>Allow once</button>
          <button type="button" class="small" disabled={disabled} onClick={() => void answer(ask, 'denyOnce')}>Deny</button>
        </>}
        {!here && <a class="button small" href={askPath(ask.session, ask.ask)}>{ask.question ? 'Answer' : 'Review'}</a>}
      </div>
      <ProgressLine progress={progress} />
    </div>
  )
}
