// The plan: a chip with how far it is, and its steps.

import { useState } from 'preact/hooks'
import type { Plan } from '../wire'
import { Icon } from '../ui/icons'
import { Sheet } from '../ui/sheet'

const WORDS = { pending: 'To do', running: 'In progress', done: 'Done' } as const

export function PlanSteps({ plan }: { plan: Plan }) {
  return (
    <ol class="bare steps">
      {plan.steps.map((step, place) => (
        <li key={place} class={`step is-${step.state}`}>
          <span class="step-mark">{step.state === 'running' ? <span class="spinner" /> : <Icon name={step.state === 'done' ? 'check' : 'dot'} size={15} />}</span>
          <span><span class="off-screen">{WORDS[step.state] ?? step.state}: </span>{step.text}</span>
        </li>
      ))}
    </ol>
  )
}

/** The plan in the conversation, folded to how far it is. */
export function PlanRow({ plan }: { plan: Plan }) {
  const done = plan.steps.filter((step) => step.state === 'done').length
  return (
    <details class="plan-row">
      <summary><Icon name="plan" size={16} />Plan, {done} of {plan.steps.length} done</summary>
      <PlanSteps plan={plan} />
    </details>
  )
}

export function PlanChip({ plan }: { plan: Plan }) {
  const [open, setOpen] = useState(false)
  const done = plan.steps.filter((step) => step.state === 'done').length
  const running = plan.steps.find((step) => step.state === 'running')
  return (
    <>
      <button type="button" class="plan-chip" onClick={() => setOpen(true)}>
        <Icon name="plan" size={16} /><strong>Plan {done}/{plan.steps.length}</strong>{running && <span class="plan-now">{running.text}</span>}
      </button>
      {open && <Sheet label="Plan" onClose={() => setOpen(false)}><PlanSteps plan={plan} /></Sheet>}
    </>
  )
}
