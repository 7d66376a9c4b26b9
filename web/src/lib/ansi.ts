// Terminal output as styled pieces of text.
//
// Only colours and weights are taken from escape sequences, and what a carriage return or an erased
// line would leave visible. Everything else (titles, links, moving about, questions to the terminal)
// is swallowed: output of a command must not be able to do more here than to be read.

export interface Piece {
  text: string
  /** Classes for weight and the named colours. */
  classes: string
  /** Colours beyond the named ones, as CSS. */
  ink: string | null
  ground: string | null
}

export type Line = Piece[]

/** What is looked at, from the end, and the lines that are shown of it. */
export const CHARS_MAX = 400_000
export const LINES_MAX = 4_000
/** A longer line is broken, as a terminal would. */
const COLUMNS_MAX = 4_000

interface Style {
  bold: boolean
  dim: boolean
  italic: boolean
  under: boolean
  strike: boolean
  invert: boolean
  ink: string | null
  ground: string | null
}

const PLAIN: Style = { bold: false, dim: false, italic: false, under: false, strike: false, invert: false, ink: null, ground: null }
const NAMES = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white']

/** CSI, then OSC and the other strings, then two-character escapes, then the controls that matter. */
const SPECIAL = /(?:\x1b\[|\x9b)([0-?]*)([ -/]*)([@-~])|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]|\x1b|[\x00-\x1f\x7f-\x9f]/g

export function parseAnsi(given: string): Line[] {
  const text = given.length > CHARS_MAX ? given.slice(-CHARS_MAX) : given
  const screen = new Screen()
  let from = 0
  SPECIAL.lastIndex = 0
  for (let found = SPECIAL.exec(text); found; found = SPECIAL.exec(text)) {
    if (found.index > from) screen.write(text.slice(from, found.index))
    from = SPECIAL.lastIndex
    act(screen, found)
  }
  if (from < text.length) screen.write(text.slice(from))
  return screen.lines()
}

/** The text that a reader would see, without any styling: for copying. */
export function plainText(given: string): string {
  return parseAnsi(given).map((line) => line.map((piece) => piece.text).join('')).join('\n')
}

function act(screen: Screen, found: RegExpExecArray): void {
  const [all, params, between, final] = found
  if (final === 'm' && between === '') screen.style = styled(screen.style, params ?? '')
  else if (final === 'K' && between === '') screen.erase(params === '' ? 0 : Number(params))
  else if (final !== undefined) return
  else if (all === '\n') screen.newLine()
  else if (all === '\r') screen.column = 0
  else if (all === '\b') screen.column = Math.max(0, screen.column - 1)
  else if (all === '\t') screen.write(' '.repeat(8 - (screen.column % 8)))
}

/** The line that is being written, as characters with styles; the ones before are finished. */
class Screen {
  style = PLAIN
  column = 0
  private chars: string[] = []
  private styles: Style[] = []
  private readonly finished: Line[] = []

  write(text: string): void {
    for (const char of text) {
      if (this.column >= COLUMNS_MAX) this.newLine()
      while (this.chars.length < this.column) this.set(this.chars.length, ' ', PLAIN)
      this.set(this.column, char, this.style)
      this.column += 1
    }
  }

  newLine(): void {
    this.finished.push(this.pieces())
    if (this.finished.length > LINES_MAX * 2) this.finished.splice(0, this.finished.length - LINES_MAX)
    this.chars = []
    this.styles = []
    this.column = 0
  }

  erase(how: number): void {
    if (how === 0) {
      this.chars.length = Math.min(this.chars.length, this.column)
      this.styles.length = this.chars.length
    } else if (how === 2) {
      this.chars = []
      this.styles = []
    }
  }

  lines(): Line[] {
    const all = this.chars.length > 0 ? [...this.finished, this.pieces()] : this.finished
    return all.slice(-LINES_MAX)
  }

  private set(place: number, char: string, style: Style): void {
    this.chars[place] = char
    this.styles[place] = style
  }

  private pieces(): Line {
    const line: Line = []
    let from = 0
    for (let place = 1; place <= this.chars.length; place += 1) {
      if (place < this.chars.length && this.styles[place] === this.styles[from]) continue
      line.push(piece(this.chars.slice(from, place).join(''), this.styles[from] ?? PLAIN))
      from = place
    }
    return line
  }
}

function piece(text: string, style: Style): Piece {
  const [ink, ground] = style.invert ? [style.ground ?? 'base', style.ink ?? 'text'] : [style.ink, style.ground]
  const classes = [
    style.bold && 'a-bold', style.dim && 'a-dim', style.italic && 'a-italic',
    style.under && 'a-under', style.strike && 'a-strike',
    ink && !ink.startsWith('#') && `a-ink-${ink}`,
    ground && !ground.startsWith('#') && `a-on-${ground}`,
  ].filter(Boolean).join(' ')
  return { text, classes, ink: ink?.startsWith('#') ? ink : null, ground: ground?.startsWith('#') ? ground : null }
}

function styled(before: Style, params: string): Style {
  const codes = params.split(/[;:]/).map((part) => (part === '' ? 0 : Number(part)))
  const style = { ...before }
  for (let place = 0; place < codes.length; place += 1) {
    const code = codes[place] ?? 0
    if (code === 38 || code === 48) {
      const [colour, used] = extended(codes.slice(place + 1))
      if (code === 38) style.ink = colour
      else style.ground = colour
      place += used
    } else simple(style, code)
  }
  return style
}

function simple(style: Style, code: number): void {
  switch (code) {
    case 0: Object.assign(style, PLAIN); break
    case 1: style.bold = true; break
    case 2: style.dim = true; break
    case 3: style.italic = true; break
    case 4: style.under = true; break
    case 7: style.invert = true; break
    case 9: style.strike = true; break
    case 22: style.bold = style.dim = false; break
    case 23: style.italic = false; break
    case 24: style.under = false; break
    case 27: style.invert = false; break
    case 29: style.strike = false; break
    case 39: style.ink = null; break
    case 49: style.ground = null; break
    default:
      if (code >= 30 && code <= 37) style.ink = NAMES[code - 30] ?? null
      else if (code >= 40 && code <= 47) style.ground = NAMES[code - 40] ?? null
      else if (code >= 90 && code <= 97) style.ink = `bright-${NAMES[code - 90]}`
      else if (code >= 100 && code <= 107) style.ground = `bright-${NAMES[code - 100]}`
  }
}

/** A colour of 256, or a true one: what it is, and how many codes say it. */
function extended(codes: number[]): [string | null, number] {
  const byte = (value: number | undefined) => Math.max(0, Math.min(255, Math.trunc(value ?? 0) || 0))
  if (codes[0] === 5) return [indexed(byte(codes[1])), 2]
  if (codes[0] === 2) return [hex(byte(codes[1]), byte(codes[2]), byte(codes[3])), 4]
  return [null, 0]
}

function indexed(index: number): string {
  if (index < 8) return NAMES[index] ?? 'white'
  if (index < 16) return `bright-${NAMES[index - 8]}`
  if (index >= 232) return hex(...grey(8 + (index - 232) * 10))
  const at = index - 16
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40)
  return hex(level(Math.floor(at / 36)), level(Math.floor(at / 6) % 6), level(at % 6))
}

const grey = (value: number): [number, number, number] => [value, value, value]

function hex(red: number, green: number, blue: number): string {
  return `#${[red, green, blue].map((value) => value.toString(16).padStart(2, '0')).join('')}`
}
