// The door of a hub: a passkey, or a link that was sent; and after a link, a passkey for the next time.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { errorText } from '../lib/toast'
import { guessName } from '../pair/pairing'
import { type HubInfo, fetchHubInfo } from './hub-info'
import { type SignInLink, parsePastedLink } from './sign-in-link'
import { addPasskey, hasPasskeys, post, signIn } from './passkey'
import { storeProof } from '../lib/sign-in-proof'
import '../pair/sign-in.css'
import './hub.css'

type Step =
  | { is: 'asking' }
  /** The first person of a hub says who they are; all others were named by whoever invited them. */
  | { is: 'naming' }
  | { is: 'working'; words: string }
  /** In, and with nothing to come in with the next time. */
  | { is: 'offering' }
  | { is: 'failed'; message: string; advice: string }

const ADVICE: Record<SignInLink['kind'], string> = {
  setup: 'A setup link works once. If there is no admin yet, restart ropewalk hub: it prints a new one.',
  join: 'Invitations work once, for seven days. Ask an admin of this hub for a new one.',
  share: 'The link has expired or was revoked. Ask whoever sent it for a new one.',
}

interface SignInProps {
  signInLink: SignInLink | null
  /** Was here by a link that is not good any more. */
  linkEnded?: boolean
  /** Was signed in, and has lost the proof of it. */
  again?: boolean
  /** Where one goes afterwards. */
  onIn?: () => void
}

const DEVICE = () => guessName(navigator.userAgent, navigator.maxTouchPoints)

export default function SignIn({ signInLink, linkEnded = false, again = false, onIn = () => location.replace(location.pathname === '/login' ? '/' : location.pathname) }: SignInProps) {
  const openedLink = useSignal<SignInLink | null>(signInLink)
  const step = useSignal<Step>({ is: 'asking' })
  const facts = useSignal<HubInfo | null>(null)
  const failed = useSignal<string | null>(null)
  useEffect(() => { void fetchHubInfo().then((found) => { facts.value = found }) }, [])
  const enter = async (from: SignInLink, name: string | null) => {
    step.value = { is: 'working', words: 'Just a moment…' }
    try {
      const entered = (await post('/ui/enter', { code: `${from.kind}.${from.code}`, name: DEVICE(), person: name ?? undefined })) as { addPasskey?: unknown } | null
      await storeProof(entered)
      if (entered?.addPasskey !== true || !hasPasskeys()) return onIn()
      step.value = { is: 'offering' }
    } catch (error) {
      step.value = { is: 'failed', message: errorText(error), advice: ADVICE[from.kind] }
    }
  }
  const arrive = (from: SignInLink) => {
    openedLink.value = from
    if (from.kind === 'setup') step.value = { is: 'naming' }
    else void enter(from, null)
  }
  useEffect(() => { if (signInLink) arrive(signInLink) }, [])
  const attempt = async (words: string, run: () => Promise<void>, advice: string) => {
    // Who is in stays in, whether or not a passkey could be made.
    const isIn = step.value.is === 'offering'
    step.value = { is: 'working', words }
    try {
      await run()
      onIn()
    } catch (error) {
      failed.value = errorText(error)
      step.value = isIn ? { is: 'offering' } : { is: 'failed', message: errorText(error), advice }
    }
  }
  return (
    <main class="enter" id="main">
      <div class="enter-card">
        <img src="/icon.svg" width="64" height="64" alt="" />
        <h1>{step.value.is === 'naming' ? 'Set up this hub' : step.value.is === 'offering' ? 'You are signed in' : 'Sign in to Ropewalk'}</h1>
        <p class="enter-host">{location.host}</p>
        {step.value.is === 'asking' && <Asking facts={facts.value} linkEnded={linkEnded} again={again} onPasskey={() => void attempt('Waiting for your passkey…', () => signIn(DEVICE()), 'Try again, or sign in with a link.')} onLink={arrive} />}
        {step.value.is === 'naming' && <Naming onName={(name) => { if (openedLink.value) void enter(openedLink.value, name) }} />}
        {step.value.is === 'working' && <p class="enter-wait" role="status">{step.value.words}</p>}
        {step.value.is === 'offering' && <Offering failed={failed.value} onAdd={() => void attempt('Waiting for your device…', () => addPasskey(DEVICE()), '')} onLater={onIn} />}
        {step.value.is === 'failed' && (
          <div role="alert">
            <p class="enter-failed">{step.value.message}</p>
            <p class="enter-note">{step.value.advice}</p>
            <button type="button" class="enter-main" onClick={() => { step.value = { is: 'asking' } }}>Back</button>
          </div>
        )}
      </div>
    </main>
  )
}

function Asking({ facts, linkEnded, again, onPasskey, onLink }: { facts: HubInfo | null; linkEnded: boolean; again: boolean; onPasskey: () => void; onLink: (from: SignInLink) => void }) {
  return (
    <>
      {again && <p class="enter-failed" role="status">Sign in again. This browser has lost its sign-in: its stored data was cleared, or it signed in before the last update of this hub.</p>}
      {linkEnded && !again && <p class="enter-failed" role="status">The link to this session has expired or was revoked.</p>}
      {facts?.setup
        ? <p>This hub has no admin yet. Open the link that <code>ropewalk hub</code> printed when it started to become the first admin.</p>
        : hasPasskeys() && facts?.passkeys !== false
          ? <button type="button" class="enter-main" onClick={onPasskey}>Sign in with a passkey</button>
          : <p>Passkeys do not work here: they need HTTPS and an address with a host name instead of numbers. Sign in with a link.</p>}
      <details>
        <summary>{facts?.setup ? 'Paste the link' : 'No passkey on this device?'}</summary>
        {!facts?.setup && <p>Use the passkey on your phone if the browser offers it, or ask an admin of this hub for a new link. On the hub’s machine, <code>ropewalk hub link</code> prints one.</p>}
        <Paste onLink={onLink} />
      </details>
    </>
  )
}

function Paste({ onLink }: { onLink: (from: SignInLink) => void }) {
  const text = useSignal('')
  const wrong = useSignal(false)
  const take = (event: Event) => {
    event.preventDefault()
    const found = parsePastedLink(text.value)
    wrong.value = found === null
    if (found) onLink(found)
  }
  return (
    <form onSubmit={take}>
      <label class="enter-field">
        <span>Sign-in link</span>
        <input value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} autocomplete="off" autocapitalize="off" spellcheck={false} enterkeyhint="go" aria-describedby={wrong.value ? 'paste-wrong' : undefined} />
      </label>
      {wrong.value && <p id="paste-wrong" role="alert">This is not a sign-in link, or part of it is missing. Copy it again.</p>}
      <button type="submit" class="enter-second">Sign in with this link</button>
    </form>
  )
}

function Naming({ onName }: { onName: (name: string) => void }) {
  const name = useSignal('')
  return (
    <form onSubmit={(event) => { event.preventDefault(); if (name.value.trim() !== '') onName(name.value.trim()) }}>
      <p>You become the first admin: you can invite people and connect machines.</p>
      <label class="enter-field">
        <span>Your name, as others see it</span>
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} maxLength={60} autocomplete="name" enterkeyhint="go" required autoFocus />
      </label>
      <button type="submit" class="enter-main">Set up</button>
    </form>
  )
}

function Offering({ failed, onAdd, onLater }: { failed: string | null; onAdd: () => void; onLater: () => void }) {
  return (
    <>
      <p>With a passkey you can sign in again without a link, on this device and on others that share it. The hub never gets its secret.</p>
      {failed && <p class="enter-failed" role="alert">{failed}</p>}
      <button type="button" class="enter-main" onClick={onAdd}>Add a passkey</button>
      <button type="button" class="enter-second" onClick={onLater}>Later</button>
      <p class="enter-note">Without one, you need a new link from an admin when this browser is signed out.</p>
    </>
  )
}
