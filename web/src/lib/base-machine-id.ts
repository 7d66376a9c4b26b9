/** Several processes of one machine have names of their own at a hub, `ID-2` and so on. To its devices it is one, with one key. */
export function identityOf(machine: string): string {
  return /^([0-9a-f]{32})-\d+$/.exec(machine)?.[1] ?? machine
}
