// `/login` and `/pair`: shown without the rest of the app, before there is a connection.
//
// The code comes after `#`, where no server and no log sees it, and is taken out of the address at once, so that
// it is in no history either. A login link goes in by itself; whoever pairs first says what the device is called.

import { useSignal, type Signal } from '@preact/signals'
import { useEffect, useState } from 'preact/hooks'
import { fetchHubInfo } from '../hub/hub-info'
import { pairingFragment } from '../hub/pairing-link'
import { lazy } from '../lib/lazy'
import { storeProof } from '../lib/sign-in-proof'
import { codeOf, pairDevice, FAILURES, guessName, type SignInReply, type SendCode, type PairingStep } from './pairing'
import './sign-in.css'

const SignIn = lazy(() => import('../hub/sign-in'))
const PairMachine = lazy(() => import('../hub/pair-machine'))

/** The same addresses lead into a hub, where one comes in otherwise, and pairs with machines that are sealed. */
export default function EnterCode({ mode }: { mode: 'login' | 'pair' }) {
  const [sealed] = useState(() => (mode === 'pair' ? pairingFragment(location.hash) : null))
  // Who has a code for this server need not ask what it is.
  const [hub, setHub] = useState<boolean | null>(sealed !== null ? true : location.hash !== '' ? false : null)
  useEffect(() => {
    if (sealed !== null) takeCode()
    else if (hub === null) void fetchHubInfo().then((found) => setHub(found !== null))
  }, [])
  if (hub === null) return null
  if (hub) return mode === 'pair' ? <PairMachine fragment={sealed} /> : <SignIn signInLink={null} />
  return <ByCode mode={mode} />
}

function ByCode({ mode }: { mode: 'login' | 'pair' }) {
  const code = useSignal('')
  const came = useSignal(false)
  const name = useSignal(guessName(navigator.userAgent, navigator.maxTouchPoints))
  const step = useSignal<PairingStep | null>(null)
  const start = () => {
    if (step.value?.is === 'entering' || step.value?.is === 'knocking') return
    void pairDevice(codeOf(code.value), name.value.trim() || 'Browser', send, (next) => {
      step.value = next
      // Loaded anew, so that nothing of this page goes in with it.
      if (next.is === 'in') location.replace('/')
    })
  }
  useEffect(() => {
    // Also when a second link is opened over this page, which is not loaded anew for it.
    const arrive = () => {
      const found = takeCode()
      if (found === '') return
      code.value = found
      came.value = true
      step.value = null
      if (mode === 'login') start()
    }
    arrive()
    addEventListener('hashchange', arrive)
    return () => removeEventListener('hashchange', arrive)
  }, [mode])
  return (
    <main class="enter">
      <div class="enter-card">
        <img src="/icon.svg" width="64" height="64" alt="" />
        <h1>{mode === 'pair' ? 'Pair this device' : 'Sign in to Ropewalk'}</h1>
        <p class="enter-host">{location.host}</p>
        <Body mode={mode} step={step.value} came={came.value} code={code} name={name} start={start} onAgain={() => { code.value = ''; came.value = false; step.value = null }} />
      </div>
    </main>
  )
}

/** The code of the address, which is rewritten without it before anything else happens. */
function takeCode(): string {
  const code = decoded(location.hash.slice(1))
  if (location.hash !== '') history.replaceState(null, '', location.pathname)
  return code
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

const send: SendCode = async (body): Promise<SignInReply> => {
  const response = await fetch('/ui/enter', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), cache: 'no-store' })
  const answer = (await response.json().catch(() => null)) as SignInReply['body']
  if (response.ok) await storeProof(answer)
  return { status: response.status, body: answer }
}

interface BodyProps {
  mode: 'login' | 'pair'
  step: PairingStep | null
  /** The code came with the address: nobody needs to read it. */
  came: boolean
  code: Signal<string>
  name: Signal<string>
  start: () => void
  onAgain: () => void
}

function Body({ mode, step, came, code, name, start, onAgain }: BodyProps) {
  switch (step?.is) {
    case 'entering':
    case 'in':
      return <p class="enter-wait" role="status">{step.is === 'in' ? 'You are signed in.' : 'Just a moment…'}</p>
    case 'knocking':
      return <Knocking words={step.words} />
    case 'failed':
      return (
        <div role="alert">
          <p class="enter-failed">{FAILURES[step.why].title ?? step.message}</p>
          <p class="enter-note">{FAILURES[step.why].advice}</p>
          {step.why === 'unreachable' || step.why === 'slow'
            ? <button type="button" class="enter-main" onClick={start}>Try again</button>
            : <button type="button" class="enter-main" onClick={onAgain}>Enter another code</button>}
          <Help mode={mode} />
        </div>
      )
    default:
      return <Form mode={mode} came={came} code={code} name={name} start={start} />
  }
}

function Knocking({ words }: { words: string }) {
  return (
    <div role="status">
      <p>Waiting for approval. The other screen must show the same words:</p>
      <p class="enter-words" data-words>{words}</p>
      <p class="enter-note">Approve this device there, under Settings, Devices. In a terminal, answer y.</p>
    </div>
  )
}

function Form({ mode, came, code, name, start }: Omit<BodyProps, 'step' | 'onAgain'>) {
  return (
    <form onSubmit={(event) => { event.preventDefault(); if (code.value.trim() !== '') start() }}>
      {!came && (
        <label class="enter-field">
          <span>Code or link</span>
          <input class="enter-code" value={code.value} onInput={(event) => (code.value = event.currentTarget.value)} autocomplete="one-time-code" autocapitalize="characters" autocorrect="off" spellcheck={false} enterkeyhint="go" placeholder={mode === 'pair' ? 'ABCD-EFGH' : ''} required />
        </label>
      )}
      <label class="enter-field">
        <span>Device name</span>
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} maxLength={60} autocomplete="off" enterkeyhint="go" />
      </label>
      <button type="submit" class="enter-main">{mode === 'pair' ? 'Pair' : 'Sign in'}</button>
      {!came && <Help mode={mode} />}
    </form>
  )
}

function Help({ mode }: { mode: 'login' | 'pair' }) {
  if (mode === 'pair') return <p class="enter-note">To get a code, open Settings, Devices on a paired device, or run <code>ropewalk pair</code> in a terminal.</p>
  return <p class="enter-note">If this browser is already signed in, <a href="/">go to your sessions</a>. To get a sign-in link, run <code>ropewalk up</code> on the machine where Ropewalk runs. To use another device, <a href="/pair">pair it</a>.</p>
}
