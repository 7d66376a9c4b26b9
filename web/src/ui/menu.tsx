// A small menu behind a button.

import { useEffect, useRef, useState } from 'preact/hooks'
import { Icon, type IconName } from './icons'

export interface MenuItem {
  name: string
  icon?: IconName
  bad?: boolean
  run: () => void
}

export function Menu({ label, items }: { label: string; items: MenuItem[] }) {
  const [open, setOpen] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  const list = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (!open) return
    list.current?.querySelector('button')?.focus()
    const outside = (event: Event) => { if (!box.current?.contains(event.target as Node)) setOpen(false) }
    document.addEventListener('pointerdown', outside)
    return () => document.removeEventListener('pointerdown', outside)
  }, [open])
  const close = () => {
    setOpen(false)
    box.current?.querySelector('button')?.focus()
  }
  const keys = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && open) {
      event.stopPropagation()
      close()
    }
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
    if (step === 0 || !open) return
    event.preventDefault()
    const buttons = [...(list.current?.querySelectorAll('button') ?? [])]
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement)
    buttons[(at + step + buttons.length) % buttons.length]?.focus()
  }
  return (
    <div class="menu" ref={box} onKeyDown={keys}>
      <button type="button" class="icon-button" aria-label={label} aria-haspopup="menu" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="menu" />
      </button>
      {open && (
        <div class="menu-list" role="menu" aria-label={label} ref={list}>
          {items.map((item) => (
            <button key={item.name} type="button" role="menuitem" class={item.bad ? 'bad' : ''} onClick={() => { close(); item.run() }}>
              {item.icon && <Icon name={item.icon} size={18} />}{item.name}
            </button>
          ))}
        </div>
      )}
    </div>
  )
}
