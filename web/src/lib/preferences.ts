// Choices of this browser that the server need not know.

import { effect, signal, type Signal } from '@preact/signals'
import { writeStored, readStored } from './browser-storage'

export type Theme = 'auto' | 'light' | 'dark'
/** What the Enter key does in the composer; `auto` sends where there is a real keyboard. */
export type SendKey = 'auto' | 'enter' | 'modifierEnter'

function choice<T extends string | boolean>(name: string, usual: T, allowed: readonly T[]): Signal<T> {
  const found = readStored<T>(`choice.${name}`)
  const value = signal<T>(found !== null && allowed.includes(found) ? found : usual)
  effect(() => void writeStored(`choice.${name}`, value.value === usual ? null : value.value))
  return value
}

export const theme = choice<Theme>('theme', 'auto', ['auto', 'light', 'dark'])
export const wrapLines = choice<boolean>('wrap', true, [true, false])
export const splitDiffs = choice<boolean>('split', true, [true, false])
export const sendKey = choice<SendKey>('send', 'auto', ['auto', 'enter', 'modifierEnter'])

export function startTheme(): void {
  effect(() => {
    const root = document.documentElement
    if (theme.value === 'auto') delete root.dataset.theme
    else root.dataset.theme = theme.value
  })
}
