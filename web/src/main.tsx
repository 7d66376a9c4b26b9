import { render } from 'preact'
import './style.css'

const root = document.getElementById('app')
if (root) render(<p>Ropewalk</p>, root)
