// Beside a session on a wide screen: its changes, plan, output and details.

import { signal } from '@preact/signals'
import { hubVisit, machineOf } from '../lib/hub-state'
import { lazy } from '../lib/lazy'
import { hello } from '../lib/connection'
import type { WatchedSession } from '../lib/watched-session'
import { copyText } from '../lib/toast'
import { clockTime, money, plainName, visible } from '../lib/format'
import { IconButton } from '../ui/icon-button'
import { Icon } from '../ui/icons'
import { Output } from '../ui/markdown-and-output'
import { PlanSteps } from './plan'

const Changes = lazy(() => import('../changes/changes'))

const TABS = ['Changes', 'Plan', 'Output', 'Details'] as const
type Tab = (typeof TABS)[number]

const tab = signal<Tab>('Changes')

export function SidePanel({ watched }: { watched: WatchedSession }) {
  const step = (event: KeyboardEvent) => {
    const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0
    if (by === 0) return
    tab.value = TABS[(TABS.indexOf(tab.value) + by + TABS.length) % TABS.length] ?? 'Changes'
    requestAnimationFrame(() => document.getElementById(`tab-${tab.value}`)?.focus())
  }
  return (
    <aside class="panel" aria-label="About this session">
      <div class="tabs" role="tablist" aria-label="About this session" onKeyDown={step}>
        {TABS.map((name) => (
          <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={tab.value === name} aria-controls="panel" tabIndex={tab.value === name ? 0 : -1} onClick={() => { tab.value = name }}>{name}</button>
        ))}
      </div>
      <div class="panel-body" role="tabpanel" id="panel" aria-labelledby={`tab-${tab.value}`} tabIndex={0}>
        {tab.value === 'Changes' && <Changes key={watched.session} session={watched.session} path={null} panel />}
        {tab.value === 'Plan' && <PlanTab watched={watched} />}
        {tab.value === 'Output' && <OutputTab watched={watched} />}
        {tab.value === 'Details' && <SessionDetails watched={watched} />}
      </div>
    </aside>
  )
}

function PlanTab({ watched }: { watched: WatchedSession }) {
  const plan = watched.state.value?.plan
  return plan && plan.steps.length > 0 ? <PlanSteps plan={plan} /> : <p class="empty">The agent has not made a plan.</p>
}

/** What the last command wrote, or writes. */
function OutputTab({ watched }: { watched: WatchedSession }) {
  void watched.rows.shape.value
  const id = [...watched.rows.ids.value].reverse().find((one) => {
    const row = watched.rows.get(one)?.peek()
    return row?.is === 'tool' && row.kind === 'execute'
  })
  const row = id === undefined ? undefined : watched.rows.get(id)?.value
  if (row?.is !== 'tool') return <p class="empty">No command has run yet.</p>
  return <><p class="output-title"><Icon name="terminal" size={16} />{visible(row.title)}</p>{row.output === '' ? <p class="soft">No output.</p> : <Output text={row.output} lines={1_000} label="Output" />}</>
}

export function SessionDetails({ watched }: { watched: WatchedSession }) {
  const state = watched.state.value
  const facts: [string, string | null][] = [
    ['Folder', state?.folder ?? null],
    ['Session', watched.session],
    ['Machine', plainName(hubVisit.value ? (machineOf(watched.session)?.name ?? '') : (hello.value?.host ?? '')) || null],
    ['Sandbox', (!hubVisit.value && hello.value?.sandbox) || null],
    ['Context', state && state.contextSize > 0 ? `${state.contextUsed.toLocaleString()} of ${state.contextSize.toLocaleString()} tokens` : null],
    ['Cost', state && state.costUsd !== null ? `${money(state.costUsd)}${state.unpriced ? ', plus use without a known price' : ''}` : null],
    ['Also viewing', state && state.others.length > 0 ? state.others.join(', ') : null],
    ['Log position', watched.upto === null ? null : String(watched.upto)],
    ['Last update', watched.toldAt.value === null ? null : clockTime(watched.toldAt.value)],
    ...(state?.settings ?? []).map((setting): [string, string] => [setting.name, setting.choices.find((choice) => choice.value === setting.value)?.name ?? setting.value]),
  ]
  return (
    <dl class="details">
      {facts.flatMap(([name, value]) => value === null ? [] : [
        <div key={name}><dt>{name}</dt><dd>{visible(value)}{(name === 'Session' || name === 'Folder') && <IconButton tiny label={`Copy the ${name.toLowerCase()}`} icon="copy" size={15} onPress={() => void copyText(value)} />}</dd></div>,
      ])}
    </dl>
  )
}
