// A sheet over the page: from the bottom on a phone, in the middle of a desktop. The browser's own
// dialog keeps the focus inside, closes on Escape, and gives the focus back.

import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { IconButton } from './icon-button'

interface SheetProps {
  label: string
  onClose: () => void
  children: ComponentChildren
  class?: string
}

export function Sheet({ label, onClose, children, class: extra = '' }: SheetProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null
    const mine = dialog.current
    mine?.showModal()
    // The browser chooses the first button, which closes; a field that asked for it keeps the focus.
    if (document.activeElement?.tagName !== 'INPUT') mine?.querySelector<HTMLElement>('.sheet-body')?.focus()
    return () => {
      mine?.close()
      before?.focus?.()
    }
  }, [])
  return (
    <dialog ref={dialog} class={`sheet ${extra}`} aria-label={label}
      onCancel={(event) => { event.preventDefault(); onClose() }}
      onClick={(event) => { if (event.target === dialog.current) onClose() }}>
      <div class="sheet-inside">
        <header class="sheet-head">
          <h2>{label}</h2>
          <IconButton label="Close" icon="close" onPress={onClose} />
        </header>
        <div class="sheet-body" tabIndex={-1}>{children}</div>
      </div>
    </dialog>
  )
}
