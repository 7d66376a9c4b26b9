// One decision, whole: what is asked, how risky it is and why, and the answers.

import { useEffect, useRef, useState } from 'preact/hooks'
import type { AskView } from '../wire'
import { hello } from '../lib/connection'
import { age, askTitle, isGrave, plainName, riskLabel, visible } from '../lib/format'
import { Icon, kindIcon } from '../ui/icons'
import { answer, makesRules, hasRole, mayAnswerAlways, answerProgressOf, type AnswerProgress } from './answer'
import { isTruncated } from './ask-summary'
import { HoldButton } from './hold-button'
import { Preview } from './preview'
import { QuestionForm } from './question-form'

/** Buttons take no press this soon after they appeared: it was meant for what was there before. */
const ARM_MS = 400

interface AskCardProps {
  ask: AskView
  place: number
  of: number
  session: string
  onNext?: () => void
}

export function AskCard({ ask, place, of, session, onNext }: AskCardProps) {
  const armed = useArmed(`${ask.session} ${ask.ask}`)
  const progress = answerProgressOf(ask)
  const busy = progress !== undefined && progress.is !== 'failed'
  return (
    <article class={`ask risk-${ask.question ? 'none' : ask.risk}`} aria-label={askTitle(ask)} data-ask={ask.ask}>
      <header class="ask-head">
        <Icon name={ask.question ? 'question' : kindIcon(ask.kind)} />
        <div class="ask-title">
          <h2>{askTitle(ask)}</h2>
          <p class="soft">{session}{hello.value?.host ? ` on ${plainName(hello.value.host)}` : ''} · {age(ask.at) === 'now' ? 'just now' : `waiting ${age(ask.at)}`}</p>
        </div>
        {of > 1 && <button type="button" class="plain counter" onClick={onNext} aria-label={`Request ${place} of ${of}. Show the next one`}>{place} of {of}</button>}
      </header>
      {!ask.question && <Risk ask={ask} />}
      <div class="ask-body" tabIndex={-1}>
        {ask.question ? <p class="question-text">{visible(ask.question.text)}</p> : <>
          {ask.title !== '' && ask.title !== ask.subject && <p class="ask-what">{visible(ask.title)}</p>}
          <Preview ask={ask} />
          {isTruncated(ask) && <p class="cut">This is too long to show in full. Check it on the computer before you allow it.</p>}
        </>}
      </div>
      {!hasRole('approver') ? <p class="soft ask-foot">You have view-only access. Someone with a higher role has to answer.</p>
        : ask.question ? <QuestionForm ask={ask} disabled={busy || !armed} />
          : <Answers ask={ask} disabled={busy || !armed} />}
      <ProgressLine progress={progress} />
    </article>
  )
}

function Risk({ ask }: { ask: AskView }) {
  return (
    <p class="risk">
      <strong><Icon name={isGrave(ask.risk) ? 'alert' : 'info'} size={16} />{riskLabel(ask.risk)}</strong>
      {ask.reason !== '' && <span>{visible(ask.reason)}</span>}
    </p>
  )
}

/** What is grave, or not wholly seen, is allowed by no slip of a finger. */
const mustHold = (ask: AskView) => isGrave(ask.risk) || isTruncated(ask)

type Extra = 'always' | 'never' | 'why' | null

function Answers({ ask, disabled }: { ask: AskView; disabled: boolean }) {
  const [extra, setExtra] = useState<Extra>(null)
  const allow = () => void answer(ask, 'allowOnce')
  if (extra === 'always') return <Always ask={ask} disabled={disabled} onNever={() => setExtra('never')} onBack={() => setExtra(null)} />
  if (extra === 'never') return <Never ask={ask} disabled={disabled} onBack={() => setExtra('always')} />
  if (extra === 'why') return <Why ask={ask} disabled={disabled} onBack={() => setExtra(null)} />
  return (
    <div class="decisions">
      {mustHold(ask)
        ? <HoldButton class="decision allow grave" disabled={disabled} onDone={allow}>Allow once</HoldButton>
        : <button type="button" class="decision allow" disabled={disabled} onClick={allow} data-key="y">Allow once</button>}
      {mayAnswerAlways() && <button type="button" class="decision" disabled={disabled} onClick={() => setExtra('always')} data-key="Y">Allow always…</button>}
      <button type="button" class="decision deny" disabled={disabled} onClick={() => void answer(ask, 'denyOnce')} data-key="n">Deny</button>
      <button type="button" class="decision" disabled={disabled} onClick={() => setExtra('why')}>Deny and say why…</button>
    </div>
  )
}

/** What an answer for good is kept as: the rule that the machine would write, or what it is about. */
function KeptAnswer({ ask, answer }: { ask: AskView; answer: 'allowed without asking' | 'always denied' }) {
  const rule = makesRules() ? ask.rule : null
  const place = makesRules() ? <>in <code>{visible(ask.folder)}</code></> : 'in this session'
  return (
    <>
      <p>From now on, {place}, <strong>{ask.tool}</strong> is {answer} for {rule ? 'everything that matches this rule' : 'this'}:</p>
      <pre class="rule" tabIndex={0}>{visible(rule || ask.subject || ask.title)}</pre>
      {makesRules() && <p class="soft">You can remove the rule later under Settings, Permission rules.</p>}
    </>
  )
}

function Always({ ask, disabled, onNever, onBack }: { ask: AskView; disabled: boolean; onNever: () => void; onBack: () => void }) {
  const done = () => void answer(ask, 'allowAlways')
  const label = 'Allow and don’t ask again'
  const box = useFirstFocus()
  return (
    <div class="decisions extra" ref={box}>
      <KeptAnswer ask={ask} answer="allowed without asking" />
      {mustHold(ask)
        ? <HoldButton class="decision allow grave" disabled={disabled} onDone={done}>{label}</HoldButton>
        : <button type="button" class="decision allow" disabled={disabled} onClick={done}>{label}</button>}
      <button type="button" class="decision" onClick={onNever}>Never allow this…</button>
      <button type="button" class="decision" onClick={onBack}>Back</button>
    </div>
  )
}

function Never({ ask, disabled, onBack }: { ask: AskView; disabled: boolean; onBack: () => void }) {
  const box = useFirstFocus()
  return (
    <div class="decisions extra" ref={box}>
      <KeptAnswer ask={ask} answer="always denied" />
      <button type="button" class="decision deny" disabled={disabled} onClick={() => void answer(ask, 'denyAlways')}>Deny and don’t ask again</button>
      <button type="button" class="decision" onClick={onBack}>Back</button>
    </div>
  )
}

function Why({ ask, disabled, onBack }: { ask: AskView; disabled: boolean; onBack: () => void }) {
  const [text, setText] = useState('')
  const box = useRef<HTMLTextAreaElement>(null)
  useEffect(() => box.current?.focus(), [])
  return (
    <form class="decisions extra" onSubmit={(event) => { event.preventDefault(); void answer(ask, 'denyOnce', text.trim() || null) }}>
      <label class="field">Reason, sent to the agent
        <textarea ref={box} rows={2} value={text} maxLength={4_000} onInput={(event) => setText(event.currentTarget.value)} placeholder="For example, what to do instead" />
      </label>
      <button type="submit" class="decision deny" disabled={disabled}>Deny</button>
      <button type="button" class="decision" onClick={onBack}>Back</button>
    </form>
  )
}

/** Whoever opened this by a key goes on here: the button that they pressed is gone. */
function useFirstFocus() {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => box.current?.querySelector<HTMLElement>('[tabindex], button')?.focus(), [])
  return box
}

export function ProgressLine({ progress }: { progress: AnswerProgress | undefined }) {
  const words = !progress ? '' : progress.is === 'sending' ? 'Sending…' : progress.is === 'accepted' ? 'Accepted' : progress.message
  return <p class={`progress ${progress?.is ?? ''}`} role="status">{words}</p>
}

/** Whether what is shown has stood there for a moment. `key` says what it is, and where. */
export function useArmed(key: string): boolean {
  const [armed, setArmed] = useState<string | null>(null)
  useEffect(() => {
    const timer = setTimeout(() => setArmed(key), ARM_MS)
    return () => clearTimeout(timer)
  }, [key])
  return armed === key
}
