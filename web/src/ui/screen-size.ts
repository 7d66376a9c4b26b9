// How wide the screen is, in the three steps that the layout knows, and how high what can be seen of it.

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
/** Before and after of a change fit beside each other. */
export const twoSides = media('(min-width: 1100px)')
/** There is no mouse or touchpad, and probably no keyboard. */
export const touch = media('(pointer: coarse)')

/** Some phones lay the keyboard over the page instead of making it smaller, and push the page up. */
export function startScreen(): void {
  const seen = globalThis.visualViewport
  if (!seen || !touch.value) return
  const measure = () => {
    const whole = seen.scale > 1.01 || Math.abs(seen.height - innerHeight) < 2
    if (whole) document.documentElement.style.removeProperty('--visible-height')
    else document.documentElement.style.setProperty('--visible-height', `${Math.round(seen.height)}px`)
    if (!whole && seen.offsetTop > 0) scrollTo(0, 0)
  }
  seen.addEventListener('resize', measure)
  seen.addEventListener('scroll', measure)
}
