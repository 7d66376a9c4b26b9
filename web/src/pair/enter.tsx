/** `/login` and `/pair`: shown without the rest of the app, before there is a connection. */
export default function Enter({ mode }: { mode: 'login' | 'pair' }) {
  return <p>{mode}</p>
}
