// A new session: where, with what, and the first thing to do. The last choice is the first offer.

import { useEffect, useState } from 'preact/hooks'
import type { Setting, SlashCommand } from '../wire'
import { may } from '../ask/answer'
import { setDraft } from '../lib/draft'
import { keep, kept } from '../lib/keep'
import { ask, hello, onLive } from '../lib/line'
import { post } from '../lib/outbox'
import { go, sessionPath } from '../lib/router'
import { toast, wordsOf } from '../lib/toast'
import { Composer } from '../session/composer'
import { SettingChips } from '../session/settings'
import { Icon } from '../ui/icons'
import { phone } from '../ui/screen'
import type { Picture } from '../wire'

interface Offer {
  settings: Setting[]
  commands: SlashCommand[]
}

export function NewPage() {
  const [folder, setFolder] = useState<string | null>(null)
  const [offer, setOffer] = useState<Offer | null>(null)
  const [busy, setBusy] = useState(false)
  const { chosen, set } = useLastChoice()
  const home = hello.value?.folder
  const folders = [...new Set([...(home ? [home] : []), ...(hello.value?.folders ?? [])])]
  useEffect(() => onLive(() => {
    ask({ do: 'offer', folder }).then(setOffer, (error: unknown) => toast(wordsOf(error), true))
  }), [folder])
  const settings = (offer?.settings ?? []).map((setting) => {
    const value = chosen[setting.id]
    return value !== undefined && setting.choices.some((choice) => choice.value === value) ? { ...setting, value } : setting
  })
  const start = (text: string, pictures: Picture[]) => {
    if (busy) return false
    setBusy(true)
    const changed = settings.filter((setting, place) => setting.value !== offer?.settings[place]?.value)
    ask({ do: 'open', folder, settings: Object.fromEntries(changed.map((setting) => [setting.id, setting.value])) }).then(
      ({ session }) => {
        // What the outbox does not take stays as a draft, where it can be sent from.
        if (!post(session, text, pictures)) {
          setDraft(session, text)
          toast('Too many prompts wait to be sent. This one is a draft of the session.', true)
        }
        setDraft('new', '')
        go(sessionPath(session))
      },
      (error: unknown) => toast(wordsOf(error), true),
    ).finally(() => setBusy(false))
    // The text stays where it is until there is a session for it.
    return false
  }
  return (
    <main class="new" id="main">
      <header class="head">
        {phone.value && <a class="icon-button" href="/" aria-label="All sessions"><Icon name="back" /></a>}
        <div class="head-title"><h1>New session</h1></div>
      </header>
      <div class="new-body column">
        {!may('driver') ? <p class="empty">You are looking only, and cannot start a session.</p> : <>
          <h2 class="new-question">What should be done?</h2>
          {folders.length > 1
            ? (
              <label class="field">Project
                <select value={folder ?? home} onChange={(event) => setFolder(event.currentTarget.value === home ? null : event.currentTarget.value)}>
                  {folders.map((one) => <option key={one} value={one}>{one}</option>)}
                </select>
              </label>
            )
            : home && <p class="soft">In <code>{home}</code></p>}
          <Composer draftOf="new" session={null} commands={offer?.commands ?? []} placeholder="Describe it; the agent asks before it does anything risky"
            onSend={start} busy={false} sendLabel={busy ? 'Starting…' : 'Start'}
            chips={<SettingChips settings={settings} disabled={busy} onSet={(setting, value) => { set(setting, value); return Promise.resolve() }} />} />
        </>}
      </div>
    </main>
  )
}

function useLastChoice() {
  const [chosen, setChosen] = useState<Record<string, string>>(() => kept<Record<string, string>>('choice.new') ?? {})
  const set = (setting: string, value: string) => {
    const next = { ...chosen, [setting]: value }
    setChosen(next)
    keep('choice.new', next)
  }
  return { chosen, set }
}
