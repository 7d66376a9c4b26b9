/** Everything that a session has changed: a page of its own, and a panel beside the session. */
export default function Changes({ session }: { session: string; path: string | null; panel?: boolean }) {
  return <p>{session}</p>
}
