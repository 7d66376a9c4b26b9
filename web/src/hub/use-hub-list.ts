// Lists that a hub keeps for a person: asked for when they are shown, and again after they were changed.

import { useCallback, useEffect, useState } from 'preact/hooks'
import { connectionState } from '../lib/connection'
import { errorText } from '../lib/toast'
import { asSentence } from '../lib/format'

export interface HubList<T> {
  /** Nothing until it is here. */
  all: readonly T[] | null
  /** Why it is not. */
  trouble: string | null
  load: () => Promise<void>
}

export function useHubList<T>(get: () => Promise<readonly T[]>, of: string): HubList<T> {
  const [all, setAll] = useState<readonly T[] | null>(null)
  const [trouble, setTrouble] = useState<string | null>(null)
  const live = connectionState.value.is === 'live'
  const load = useCallback(async () => {
    try {
      setAll(await get())
      setTrouble(null)
    } catch (error) {
      setTrouble(asSentence(errorText(error)))
    }
  }, [of])
  useEffect(() => { if (live) void load() }, [live, load])
  return { all, trouble, load }
}
