export default function Settings({ part }: { part: string | null }) {
  return <p>{part}</p>
}
