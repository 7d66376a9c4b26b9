// The connection in words and a dot, and what is said at the edge of the page.

import { useLayoutEffect, useRef } from 'preact/hooks'
import { cards } from '../lib/board'
import { faults } from '../lib/machine-faults'
import { visible } from '../lib/hidden-characters'
import { hello, outdated, reconnectNow, connectionState } from '../lib/connection'
import { dismiss, toasts } from '../lib/toast'
import { clockTime, currentTime } from '../lib/format'
import { IconButton } from './icon-button'

/** A line above everything while there is no connection; nothing while there is. */
export function ConnectionBanner() {
  const line = connectionState.value
  if (line.is === 'live' || line.is === 'signedOut') return null
  const last = 'since' in line ? line.since : null
  if (line.is === 'connecting') {
    return cards.value.size > 0 || hello.value ? <p class="banner" role="status">Connecting…</p> : null
  }
  if (line.is === 'offline') {
    return (
      <p class="banner off" role="status">
        <span>Offline{last !== null && ` – last update ${clockTime(last)}`}</span>
        <button type="button" onClick={reconnectNow}>Reconnect now</button>
      </p>
    )
  }
  const seconds = Math.max(0, Math.ceil((line.until - currentTime.value) / 1_000))
  return (
    <p class="banner" role="status">
      <span>Reconnecting{seconds > 0 && <span aria-hidden="true"> in {seconds} s</span>}{last !== null && ` – last update ${clockTime(last)}`}</span>
      <button type="button" onClick={reconnectNow}>Reconnect now</button>
    </p>
  )
}

/** A line above everything for each thing that is wrong with the machine. */
export function FaultBanner() {
  return <div role="alert">{faults.value.map((fault) => <p key={fault} class="banner bad">{visible(fault)}</p>)}</div>
}

/** Words beside the dot, so that it is never the colour alone. */
export function ConnectionDot() {
  const line = connectionState.value
  const words = line.is === 'live' ? 'Live' : line.is === 'offline' ? 'Offline' : line.is === 'connecting' ? 'Connecting' : 'Reconnecting'
  return <span class={`connection is-${line.is}`} title={words}><span class="off-screen">Connection: {words}</span></span>
}

export function Toasts() {
  const box = useRef<HTMLDivElement>(null)
  const shown = toasts.value
  useLayoutEffect(() => raise(box.current), [shown])
  return (
    <div ref={box} popover="manual" class="toasts" aria-live="polite" role="status">
      {shown.map((one) => (
        <div key={one.id} class={one.bad ? 'toast bad' : 'toast'}>
          <span>{one.text}</span>
          <IconButton label="Dismiss" icon="close" size={16} onPress={() => dismiss(one.id)} />
        </div>
      ))}
      {outdated.value && (
        <div class="toast">
          <span>This page is out of date.</span>
          <button type="button" onClick={() => location.reload()}>Reload</button>
        </div>
      )}
    </div>
  )
}

/** Above everything, a sheet that was opened later included. Browsers without popovers show it where it is. */
function raise(box: HTMLElement | null): void {
  if (!box?.showPopover) return
  if (box.matches(':popover-open')) {
    if (!document.querySelector('dialog[open]')) return
    box.hidePopover()
  }
  box.showPopover()
}
