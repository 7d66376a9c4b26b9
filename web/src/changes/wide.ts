// Whether the window is as wide as a layout needs, kept current.

import { useEffect, useState } from 'preact/hooks'

export function useWide(query: string): boolean {
  const [matches, set] = useState(() => matchMedia(query).matches)
  useEffect(() => {
    const list = matchMedia(query)
    const changed = () => set(list.matches)
    changed()
    list.addEventListener('change', changed)
    return () => list.removeEventListener('change', changed)
  }, [query])
  return matches
}
