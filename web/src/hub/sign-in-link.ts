// Links into a hub: what came after the `#`, taken out of the address before anything else happens.
//
// The code is after `#`, where no server and no log sees it, and it must be in no history either.

export type SignInLinkKind = 'setup' | 'join' | 'share'

export interface SignInLink {
  kind: SignInLinkKind
  code: string
}

const LINK = /^#?(setup|join|share)\.([\w-]{8,200})$/

export function parseSignInLink(hash: string): SignInLink | null {
  const found = LINK.exec(hash)
  return found ? { kind: found[1] as SignInLinkKind, code: found[2] ?? '' } : null
}

/** A whole link or its end, as somebody pasted it. */
export function parsePastedLink(text: string): SignInLink | null {
  const given = text.trim()
  const hash = given.indexOf('#')
  return parseSignInLink(hash >= 0 ? given.slice(hash) : given)
}

/** Where somebody comes from a link, if they did. */
export function takeSignInLink(): SignInLink | null {
  const found = parseSignInLink(location.hash)
  if (found) history.replaceState(null, '', location.pathname)
  return found
}
