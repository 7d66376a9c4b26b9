// Whether this device may decide about changes: who says what is to be done also says what is undone.

import { hello, state } from '../lib/line'

export function mayDecide(): boolean {
  const role = hello.value?.role
  return state.value.is === 'live' && (role === 'driver' || role === 'owner')
}
