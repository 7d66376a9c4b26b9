// The frame around every screen: which room is shown, beside what.

import { lazy } from './lib/lazy'
import { place } from './lib/router'

const Changes = lazy(() => import('./changes/changes'))
const Settings = lazy(() => import('./settings/settings'))
const Enter = lazy(() => import('./pair/enter'))

export function App() {
  const here = place.value
  switch (here.at) {
    case 'login':
    case 'pair':
      return <Enter mode={here.at} />
    case 'settings':
      return <Settings part={here.part} />
    case 'changes':
      return <Changes session={here.session} path={here.path} />
    default:
      return <p>{here.at}</p>
  }
}
