// Whether the server is a hub, asked before anybody is signed in.

export interface HubInfo {
  /** Nobody has joined yet. */
  setup: boolean
  /** Browsers make and use passkeys at this hub's address. */
  passkeys: boolean
}

/** Nothing, if it is no hub or cannot be asked. */
export async function fetchHubInfo(): Promise<HubInfo | null> {
  try {
    const response = await fetch('/auth/about', { cache: 'no-store', headers: { accept: 'application/json' } })
    const told = response.ok ? ((await response.json()) as { hub?: unknown; setup?: unknown; passkeys?: unknown } | null) : null
    return told?.hub === true ? { setup: told.setup === true, passkeys: told.passkeys !== false } : null
  } catch {
    return null
  }
}
