// Addresses of scripts, for browsers that demand that they be vouched for (Trusted Types).
//
// The page's policy lets no string become a script or its address. Workers are the only scripts that
// are started here, and these are their names: nothing that was received can be one.

const NAMES = /^\/(?:sw|highlight\.worker)\.js$/

interface Policy {
  createScriptURL(address: string): unknown
}
interface Factory {
  createPolicy(name: string, rules: { createScriptURL(address: string): string }): Policy
}

let policy: Policy | null = null

/** A script of this app as the browser wants it. Throws for any other address. */
export function scriptAddress(address: string): string {
  const checked = (given: string) => {
    const url = new URL(given, location.href)
    // The development server has its own names for the same files.
    if (url.origin === location.origin && (NAMES.test(url.pathname) || import.meta.env.DEV)) return url.href
    throw new TypeError(`${given} is no script of this app`)
  }
  const factory = (globalThis as { trustedTypes?: Factory }).trustedTypes
  if (!factory) return checked(address)
  policy ??= factory.createPolicy('ropewalk', { createScriptURL: checked })
  return policy.createScriptURL(address) as string
}
