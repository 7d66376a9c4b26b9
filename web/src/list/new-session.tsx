// A new session: where, with what, and the first thing to do. The last choice is the first offer.

import { useEffect, useMemo, useState } from 'preact/hooks'
import type { Picture, Request, Setting, SlashCommand } from '../wire'
import { hasRole } from '../ask/answer'
import { cards } from '../lib/board'
import { setDraft } from '../lib/draft'
import { sendToMachine, isAtHub, waitUntilListed, machineOf, machines } from '../lib/hub-state'
import { writeStored, readStored } from '../lib/browser-storage'
import { sendRequest, hello, onConnected } from '../lib/connection'
import { queuePrompt } from '../lib/outbox'
import { navigate, sessionPath } from '../lib/router'
import { toast, errorText } from '../lib/toast'
import { visible } from '../lib/format'
import { Composer } from '../session/composer'
import { SettingChips } from '../session/setting-chips'
import { Icon } from '../ui/icons'
import { phone } from '../ui/screen-size'

interface Offer {
  /** Where it would be opened, if nothing else is said. */
  folder: string
  settings: Setting[]
  commands: SlashCommand[]
}

export function NewSessionPage() {
  const [folder, setFolder] = useState<string | null>(null)
  const [offered, setOffer] = useState<{ of: string | null; offer: Offer } | null>(null)
  const [busy, setBusy] = useState(false)
  const { chosen, set } = useLastChoice()
  const hub = isAtHub()
  const { machine, choose } = useMachine()
  const asked = useAsked(hub, machine)
  // What another machine offers says nothing of this one.
  const offer = offered?.of === machine ? offered.offer : null
  const [home, folders] = useFolders(hub, machine, offer)
  useEffect(() => {
    if (!asked) return
    return onConnected(() => {
      // The greeting has just said that this is a hub: it has nothing to offer, and its machines come next.
      if (!hub && isAtHub()) return
      asked({ do: 'offer', folder }).then((told) => setOffer({ of: machine, offer: told }), (error: unknown) => toast(errorText(error), true))
    })
  }, [folder, asked, machine])
  const settings = (offer?.settings ?? []).map((setting) => {
    const value = chosen[setting.id]
    return value !== undefined && setting.choices.some((choice) => choice.value === value) ? { ...setting, value } : setting
  })
  const start = (text: string, pictures: Picture[]) => {
    if (busy || !asked) return false
    setBusy(true)
    const changed = settings.filter((setting, place) => setting.value !== offer?.settings[place]?.value)
    asked({ do: 'open', folder, settings: Object.fromEntries(changed.map((setting) => [setting.id, setting.value])) }).then(
      async ({ session }) => {
        // What cannot be sent stays as a draft, where it can be sent from.
        const trouble = hub && !(await waitUntilListed(session)) ? 'The hub does not list the new session yet. Your prompt is saved there as a draft.'
          : queuePrompt(session, text, pictures) ? null : 'Too many prompts are waiting to be sent. This one is saved in the session as a draft.'
        if (trouble !== null) {
          setDraft(session, text)
          toast(trouble, true)
        }
        setDraft('new', '')
        navigate(sessionPath(session))
      },
      (error: unknown) => toast(errorText(error), true),
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
        {!hasRole('driver') ? <p class="empty">You have view-only access and cannot start a session.</p> : <>
          <h2 class="new-question">What should the agent do?</h2>
          {hub && <MachineChoice machine={machine} choose={(id) => { setFolder(null); choose(id) }} />}
          {folders.length > 1
            ? (
              <label class="field">Project
                <select value={folder ?? home} onChange={(event) => setFolder(event.currentTarget.value === home ? null : event.currentTarget.value)}>
                  {folders.map((one) => <option key={one} value={one}>{one}</option>)}
                </select>
              </label>
            )
            : home && <p class="soft">In <code>{visible(home)}</code></p>}
          <Composer draftOf="new" session={null} commands={offer?.commands ?? []} placeholder="Describe the task. The agent asks before it does anything risky."
            onSend={start} busy={false} sendLabel={busy ? 'Starting…' : 'Start'}
            chips={<SettingChips settings={settings} disabled={busy} onSet={(setting, value) => { set(setting, value); return Promise.resolve() }} />} />
        </>}
      </div>
    </main>
  )
}

/** The machine that was chosen last, if it is here; else the first that is. */
function useMachine() {
  const [wanted, setWanted] = useState<string | null>(() => readStored<string>('choice.machine'))
  const here = machines.value.filter((one) => one.here && one.own)
  const machine = (here.find(({ id }) => id === wanted) ?? here[0])?.id ?? null
  const choose = (id: string) => {
    setWanted(id)
    writeStored('choice.machine', id)
  }
  return { machine, choose }
}

/** Who is asked: the server, or at a hub the machine; nobody, while there is none. */
function useAsked(hub: boolean, machine: string | null) {
  return useMemo(() => {
    if (!hub) return sendRequest
    return machine === null ? null : ((request: Request) => sendToMachine(machine, request)) as typeof sendRequest
  }, [hub, machine])
}

/** Where a session is opened unless something else is said, and all the places that are known. */
function useFolders(hub: boolean, machine: string | null, offer: Offer | null): [string | undefined, string[]] {
  const home = hub ? offer?.folder : hello.value?.folder
  const others = hub ? [...cards.value.values()].filter((card) => card.folder !== '' && machineOf(card.session)?.id === machine).map(({ folder }) => folder) : (hello.value?.folders ?? [])
  return [home, home === undefined && hub ? [] : [...new Set([...(home ? [home] : []), ...others])]]
}

function MachineChoice({ machine, choose }: { machine: string | null; choose: (id: string) => void }) {
  const here = machines.value.filter((one) => one.here && one.own)
  const away = machines.value.filter((one) => !one.here && one.own).length
  if (here.length === 0) return <p class="note-bar" role="status"><Icon name="away" size={18} /><span>{away > 0 ? 'All your machines are offline. You can start a session when one is back.' : 'No machine is connected. Connect one to start a session.'}</span></p>
  return (
    <label class="field">Machine
      <select value={machine ?? ''} onChange={(event) => choose(event.currentTarget.value)}>
        {here.map((one) => <option key={one.id} value={one.id}>{visible(one.name || one.id)}</option>)}
      </select>
    </label>
  )
}

function useLastChoice() {
  const [chosen, setChosen] = useState<Record<string, string>>(() => readStored<Record<string, string>>('choice.new') ?? {})
  const set = (setting: string, value: string) => {
    const next = { ...chosen, [setting]: value }
    setChosen(next)
    writeStored('choice.new', next)
  }
  return { chosen, set }
}
