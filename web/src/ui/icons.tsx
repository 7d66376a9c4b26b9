// Icons as drawings of this app: no font, no other host, one stroke width. Always beside a word or in a
// button with a label, so they are hidden from screen readers.

const PATHS = {
  back: 'M15 5l-7 7 7 7',
  close: 'M6 6l12 12M18 6L6 18',
  plus: 'M12 5v14M5 12h14',
  menu: 'M12 5.5v.01M12 12v.01M12 18.5v.01',
  inbox: 'M4 13l2.5-8h11L20 13v6H4zM4 13h5l1 3h4l1-3h5',
  gear: 'M12 15.2a3.2 3.2 0 100-6.4 3.2 3.2 0 000 6.4zM12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.1 2.1M16.3 16.3l2.1 2.1M18.4 5.6l-2.1 2.1M7.7 16.3l-2.1 2.1',
  search: 'M10.5 17a6.5 6.5 0 100-13 6.5 6.5 0 000 13zM15.5 15.5L20 20',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  cross: 'M7 7l10 10M17 7L7 17',
  alert: 'M12 4l9 16H3zM12 10v4.5M12 17.2v.01',
  hand: 'M8 12V6.5a1.5 1.5 0 013 0V11V5a1.5 1.5 0 013 0v6V6.5a1.5 1.5 0 013 0V14c0 4-2.5 6.5-6 6.5-2.6 0-4-1.2-5.3-3.3L3.8 14a1.5 1.5 0 012.5-1.6L8 14.5',
  work: 'M12 4v3M12 17v3M4 12h3M17 12h3M6.3 6.3l2.2 2.2M15.5 15.5l2.2 2.2M17.7 6.3l-2.2 2.2M8.5 15.5l-2.2 2.2',
  away: 'M4 5h16v10H4zM9 20h6M12 15v5',
  dot: 'M12 14a2 2 0 100-4 2 2 0 000 4z',
  down: 'M6 9l6 6 6-6',
  right: 'M9 6l6 6-6 6',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  link: 'M10 14a4 4 0 005.7 0l3-3A4 4 0 0013 5.3l-1 1M14 10a4 4 0 00-5.7 0l-3 3A4 4 0 0011 18.7l1-1',
  picture: 'M4 5h16v14H4zM4 16l4.5-4.5L13 16M13 14l2.5-2.5L20 16M15.5 9v.01',
  at: 'M15.5 12a3.5 3.5 0 10-7 0 3.5 3.5 0 007 0zm0 0v1.5a2.25 2.25 0 004.5 0V12a8 8 0 10-3.2 6.4',
  slash: 'M15 4L9 20',
  plan: 'M4 7l1.5 1.5L8 6M11 7h9M4 13l1.5 1.5L8 12M11 13h9M11 19h9M5.5 19v.01',
  changes: 'M7 4v10M4 7h6M14 6h6M4 19h16M14 12h6',
  terminal: 'M4 5h16v14H4zM7 9l3 3-3 3M12 15h4',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  pencil: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  bin: 'M5 7h14M10 4h4M7 7l1 13h8l1-13',
  move: 'M4 12h15M14 7l5 5-5 5',
  globe: 'M12 20a8 8 0 100-16 8 8 0 000 16zM4 12h16M12 4c5 5 5 11 0 16M12 4c-5 5-5 11 0 16',
  thought: 'M9 17.5h6M10 20h4M12 4a6 6 0 00-3.5 10.9V17h7v-2.100A6 6 0 0012 4z',
  tool: 'M14.5 6.5a4 4 0 00-5 5L4 17l3 3 5.500-5.500a4 4 0 005-5L15 12l-3-3z',
  mode: 'M4 8h9M17 8h3M15 6v4M4 16h3M11 16h9M9 14v4',
  question: 'M9 9a3 3 0 116 0c0 2-3 2.500-3 4.500M12 17.500v.01M12 21a9 9 0 100-18 9 9 0 000 18z',
  lock: 'M6 11h12v9H6zM8.500 11V8a3.500 3.500 0 017 0v3',
  share: 'M12 15V4M8 8l4-4 4 4M6 12H5v8h14v-8h-1',
  key: 'M8 19a4 4 0 100-8 4 4 0 000 8zM11 12.500L19 4.500M16 7.500l2.500 2.500M14 9.500l2 2',
  info: 'M12 11v5.500M12 7.500v.01M12 21a9 9 0 100-18 9 9 0 000 18z',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name, size = 20 }: { name: IconName; size?: number }) {
  return (
    <svg class={`icon icon-${name}`} width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor"
      stroke-width="1.75" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  )
}

const KINDS: Record<string, IconName> = {
  read: 'file', edit: 'pencil', delete: 'bin', move: 'move', search: 'search', execute: 'terminal',
  think: 'thought', fetch: 'globe', switchMode: 'mode',
}

export function kindIcon(kind: string): IconName {
  return KINDS[kind] ?? 'tool'
}
