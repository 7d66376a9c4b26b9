// Links into a hub: what came after the `#`, taken out of the address before anything else happens.
//
// The code is after `#`, where no server and no log sees it, and it must be in no history either.

export type Kind = 'setup' | 'join' | 'share'

export interface Arrival {
  kind: Kind
  code: string
}

const LINK = /^#?(setup|join|share)\.([\w-]{8,200})$/

export function arrivalOf(hash: string): Arrival | null {
  const found = LINK.exec(hash)
  return found ? { kind: found[1] as Kind, code: found[2] ?? '' } : null
}

/** A whole link or its end, as somebody pasted it. */
export function pasted(text: string): Arrival | null {
  const given = text.trim()
  const hash = given.indexOf('#')
  return arrivalOf(hash >= 0 ? given.slice(hash) : given)
}

/** Where somebody comes from a link, if they did. */
export function takeArrival(): Arrival | null {
  const found = arrivalOf(location.hash)
  if (found) history.replaceState(null, '', location.pathname)
  return found
}
