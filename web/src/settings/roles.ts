// What devices may do, in words. Each may do what those before it may.

import type { Role } from '../wire'

export const ROLES: readonly (readonly [role: Role, word: string, may: string])[] = [
  ['viewer', 'Viewer', 'looks'],
  ['approver', 'Approver', 'also answers what is asked'],
  ['driver', 'Driver', 'also says what is to be done'],
  ['owner', 'Owner', 'also lets others in'],
]

export function roleWord(role: Role): string {
  return ROLES.find(([one]) => one === role)?.[1] ?? role
}
