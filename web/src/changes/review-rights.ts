// Whether this device may decide about changes: who says what is to be done also says what is undone.

import { hello, connectionState } from '../lib/connection'

export function mayReview(): boolean {
  const role = hello.value?.role
  return connectionState.value.is === 'live' && (role === 'driver' || role === 'owner')
}
