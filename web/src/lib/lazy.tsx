// Rooms of the app that are loaded when somebody first enters them.

import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'

/** A component whose code comes later; the same one is used by all who show it. */
export function lazy<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): ComponentType<P> {
  let ready: ComponentType<P> | null = null
  return function Later(props: P) {
    const [, show] = useState(0)
    const [failed, setFailed] = useState(false)
    useEffect(() => {
      if (ready) return
      load().then(
        (module) => { ready = module.default; show(1) },
        () => setFailed(true),
      )
    }, [])
    const Ready = ready
    if (Ready) return <Ready {...props} />
    if (failed) return <p class="empty">Could not load this part of the page. Reload it when you are online.</p>
    return <p class="empty" role="status">Loading…</p>
  }
}
