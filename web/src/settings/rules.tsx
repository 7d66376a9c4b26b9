// The rules by which the agent is allowed things without being asked about: where each stands, and a way out.

import { useSignal } from '@preact/signals'
import { useCallback, useEffect } from 'preact/hooks'
import { sendRequest, hello, connectionState } from '../lib/connection'
import { errorText } from '../lib/toast'
import { asSentence, visible } from '../lib/format'
import type { RuleView } from '../wire'
import { Action, Command, Section } from './setting-controls'

const EFFECTS: Record<string, string> = { allow: 'Allow', deny: 'Deny', ask: 'Ask' }

export function Rules() {
  const rules = useSignal<RuleView[] | null>(null)
  const trouble = useSignal<string | null>(null)
  const live = connectionState.value.is === 'live'
  const load = useCallback(async () => {
    try {
      rules.value = (await sendRequest({ do: 'rules' })).rules
      trouble.value = null
    } catch (error) {
      trouble.value = asSentence(errorText(error))
    }
  }, [rules, trouble])
  useEffect(() => { if (live) void load() }, [live, load])
  return (
    <Section id="rules" title="Permission rules">
      <p class="settings-lead">What the agent may do without asking, and what it may never do. “Allow always” adds a rule here; <Command text="ropewalk permissions" /> edits them in a terminal.</p>
      {trouble.value && <p class="settings-trouble" role="alert">{trouble.value}</p>}
      {rules.value?.length === 0 && <p class="settings-none">No rules yet.</p>}
      <ul class="settings-list">
        {rules.value?.map((rule) => (
          <li class="settings-entry" key={rule.id}>
            <div class="settings-words">
              <div class="settings-title"><span class={`rule-effect rule-${rule.effect}`}>{EFFECTS[rule.effect] ?? rule.effect}</span> <code class="rule-text">{visible(rule.rule)}</code></div>
              <div class="settings-note">{rule.source}</div>
            </div>
            {rule.forgettable && hello.value?.role === 'owner' && (
              <div class="settings-control">
                <Action word="Remove" sure="Remove this rule?" run={async () => { await sendRequest({ do: 'forget', rule: rule.id }); await load() }} />
              </div>
            )}
          </li>
        ))}
      </ul>
    </Section>
  )
}
