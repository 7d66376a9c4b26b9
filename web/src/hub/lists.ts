// Lists that a hub keeps for a person: asked for when they are shown, and again after they were changed.

import { useCallback, useEffect, useState } from 'preact/hooks'
import { state } from '../lib/line'
import { wordsOf } from '../lib/toast'
import { sentence } from '../lib/words'

export interface List<T> {
  /** Nothing until it is here. */
  all: readonly T[] | null
  /** Why it is not. */
  trouble: string | null
  load: () => Promise<void>
}

export function useList<T>(get: () => Promise<readonly T[]>, of: string): List<T> {
  const [all, setAll] = useState<readonly T[] | null>(null)
  const [trouble, setTrouble] = useState<string | null>(null)
  const live = state.value.is === 'live'
  const load = useCallback(async () => {
    try {
      setAll(await get())
      setTrouble(null)
    } catch (error) {
      setTrouble(sentence(wordsOf(error)))
    }
  }, [of])
  useEffect(() => { if (live) void load() }, [live, load])
  return { all, trouble, load }
}
