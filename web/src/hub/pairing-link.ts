// What stands behind the `#` of a link that pairs a device with a sealed machine: machine, secret, fingerprint.

const LINK = /^[A-Za-z0-9._-]{1,128}\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{22}$/

/** Of a whole link, or of what stands behind its `#`; nothing if it is none. */
export function pairingFragment(text: string): string | null {
  const given = text.trim()
  const found = given.slice(given.indexOf('#') + 1)
  return LINK.test(found) ? found : null
}
