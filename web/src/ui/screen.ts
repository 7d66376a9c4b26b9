// How wide the screen is, in the three steps that the layout knows.

import { signal, type Signal } from '@preact/signals'

function media(query: string): Signal<boolean> {
  const list = typeof matchMedia === 'undefined' ? null : matchMedia(query)
  const value = signal(list?.matches ?? false)
  list?.addEventListener('change', () => { value.value = list.matches })
  return value
}

/** One column. */
export const phone = media('(max-width: 759px)')
/** Three columns. */
export const wide = media('(min-width: 1200px)')
/** There is no mouse or touchpad, and probably no keyboard. */
export const touch = media('(pointer: coarse)')
