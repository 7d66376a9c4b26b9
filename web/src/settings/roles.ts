// What devices may do, in words. Each may do what those before it may.

import type { Role } from '../wire'

export const ROLES: readonly (readonly [role: Role, word: string, may: string])[] = [
  ['viewer', 'Viewer', 'can view sessions'],
  ['approver', 'Approver', 'can also answer permission requests and questions'],
  ['driver', 'Driver', 'can also send prompts and undo changes'],
  ['owner', 'Owner', 'can also manage devices and permission rules'],
]

export function roleLabel(role: Role): string {
  return ROLES.find(([one]) => one === role)?.[1] ?? role
}
