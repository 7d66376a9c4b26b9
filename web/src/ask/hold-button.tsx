// A button that does something grave: it has to be held, so that no slip of a finger or late tap does it.
//
// Touch and mouse hold it for 800 ms while a ring fills. The keyboard holds Enter or Space just as long.
// A screen reader can only click; its click asks for a second one.

import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'

export const HOLD_MS = 800
const CONFIRM_MS = 6_000

interface HoldProps {
  onDone: () => void
  disabled: boolean
  children: ComponentChildren
  class?: string
}

export function HoldButton({ onDone, disabled, children, class: extra = '' }: HoldProps) {
  const [holding, setHolding] = useState(false)
  const [hint, setHint] = useState<'hold' | 'again' | null>(null)
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const byHand = useRef(false)
  useEffect(() => () => clearTimeout(timer.current), [])
  const begin = () => {
    if (disabled) return
    byHand.current = true
    setHolding(true)
    clearTimeout(timer.current)
    timer.current = setTimeout(() => {
      setHolding(false)
      setHint(null)
      onDone()
    }, HOLD_MS)
  }
  const end = () => {
    if (!holding) return
    clearTimeout(timer.current)
    setHolding(false)
    setHint('hold')
  }
  const click = () => {
    // A click without pointer or key before it comes from assistive software.
    if (byHand.current) {
      byHand.current = false
      return
    }
    if (hint === 'again') {
      setHint(null)
      return onDone()
    }
    setHint('again')
    clearTimeout(timer.current)
    timer.current = setTimeout(() => setHint(null), CONFIRM_MS)
  }
  const isPress = (event: KeyboardEvent) => event.key === 'Enter' || event.key === ' '
  return (
    <button type="button" class={`hold ${holding ? 'holding' : ''} ${extra}`} disabled={disabled} data-hold
      onPointerDown={(event) => {
        // A touch is captured by what it begins on, and would never be seen to slide off.
        if (event.currentTarget.hasPointerCapture(event.pointerId)) event.currentTarget.releasePointerCapture(event.pointerId)
        if (event.button === 0) begin()
      }} onPointerUp={end} onPointerLeave={end} onPointerCancel={end}
      onKeyDown={(event) => {
        if (!isPress(event)) return
        event.preventDefault()
        if (!event.repeat) begin()
      }}
      onKeyUp={(event) => {
        if (!isPress(event)) return
        event.preventDefault()
        end()
        byHand.current = false
      }}
      onBlur={end} onClick={click} onContextMenu={(event) => event.preventDefault()}>
      <svg class="ring" width="28" height="28" viewBox="0 0 28 28" aria-hidden="true"><circle cx="14" cy="14" r="11" pathLength="100" /></svg>
      <span>{children}<small role="status">{hint === 'again' ? 'Press again to confirm' : hint === 'hold' ? 'Keep holding' : 'Hold to confirm'}</small></span>
    </button>
  )
}
