// Markdown straight to DOM nodes, block by block, while it is still being written.
//
// Everything here was written by a model, or by whoever wrote what a model read. So no HTML is ever
// parsed: tokens become elements of a closed set, HTML in the text stays text, links go nowhere but to
// the web and say where, and pictures are links, because loading one tells its host that it was read.
//
// Text that grows is never parsed from the start again. A block is settled when whole lines follow it
// that began two other blocks; its nodes are not touched any more. Only the rest is parsed anew.

import { Marked, type Token, type Tokens } from 'marked'

/** Nesting beyond this is shown as the text it is. */
const DEPTH_MAX = 16
/** A tail longer than this is not parsed again and again: it is shown as text until it ends. */
const TAIL_CHARS_MAX = 60_000

const NESTED = /^(?:[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])){40}/m

/** References would let a line at the end change links at the beginning; both halves stay text. */
const parser = new Marked({
  gfm: true,
  tokenizer: { def: () => undefined, reflink: () => undefined },
})

interface Block {
  token: Token
  node: Node
}

export interface Hooks {
  /** A code block will not change any more. */
  settled?(code: HTMLElement, language: string): void
}

export class MarkdownView {
  private text = ''
  /** Everything before this is settled. */
  private done = 0
  private ended = false
  private tail: Block[] = []

  constructor(private readonly host: HTMLElement, private readonly hooks: Hooks = {}) {}

  /** Shows this text. `whole` says that no more will come. */
  update(given: string, whole = false): void {
    const text = given.includes('\r') ? given.replace(/\r\n?/g, '\n') : given
    // A text that was said to be whole has no tail that could grow: its last block may go on differently.
    if (this.ended ? text !== this.text : !text.startsWith(this.text.slice(0, this.done))) this.clear()
    this.text = text
    this.ended = whole
    const rest = text.slice(this.done)
    this.show(rest.length > TAIL_CHARS_MAX && !whole ? [plain(rest)] : tokens(rest))
    this.settle(rest, whole)
  }

  private clear(): void {
    this.host.replaceChildren()
    this.done = 0
    this.tail = []
  }

  /** Makes the tail's nodes those of these tokens, keeping every node whose source is the same. */
  private show(fresh: Token[]): void {
    const next: Block[] = []
    fresh.forEach((token, place) => {
      const before = this.tail[place]
      if (before && same(before.token, token)) next.push({ token, node: before.node })
      else if (before && grow(before, token)) next.push({ token, node: before.node })
      else next.push(this.put(token, before))
    })
    for (const dropped of this.tail.slice(fresh.length)) (dropped.node as ChildNode).remove()
    this.tail = next
  }

  private put(token: Token, before: Block | undefined): Block {
    const node = block(token, 0)
    if (before) (before.node as ChildNode).replaceWith(node)
    else this.host.append(node)
    return { token, node }
  }

  /** What whole lines have left two blocks behind cannot change: an unfinished line can still turn the block before it into another one. */
  private settle(rest: string, whole: boolean): void {
    if (whole) return this.leave(this.tail.length, rest.length)
    const lines = rest.slice(0, rest.lastIndexOf('\n') + 1)
    if (lines === '' || this.tail.length < 3) return
    const sure = lines.length === rest.length ? this.tail.map((one) => one.token) : tokens(lines)
    let count = 0
    let chars = 0
    let end = 0
    sure.slice(0, -2).forEach((token, place) => {
      if (token.raw !== this.tail[place]?.token.raw || place !== count) return
      count += 1
      chars += token.raw.length
      end = chars
    })
    if (count > 0) this.leave(count, end)
  }

  private leave(count: number, chars: number): void {
    for (const { token, node } of this.tail.splice(0, count)) {
      if (token.type === 'code') this.hooks.settled?.(codeOf(node), languageOf(token as Tokens.Code))
    }
    this.done += chars
  }
}

/** Blocks of a text; space between them belongs to the block before. */
function tokens(text: string): Token[] {
  const found: Token[] = []
  let chars = 0
  for (const token of lexed(text)) {
    const before = found.at(-1)
    if (token.type === 'space' && before) found[found.length - 1] = { ...before, raw: before.raw + token.raw } as Token
    else found.push(token)
    chars += token.raw.length
  }
  // The settled length is counted in the source of blocks; a parser that loses characters would shift it.
  return chars === text.length ? found : [plain(text)]
}

/** The parser calls itself for every level of a quotation or list; nobody nests them this deep to be read. */
function lexed(text: string): Token[] {
  if (NESTED.test(text)) return [plain(text)]
  try {
    return parser.lexer(text)
  } catch {
    return [plain(text)]
  }
}

function plain(text: string): Token {
  return { type: 'plain', raw: text, text } as Tokens.Generic
}

/** The same source; where space after a block cannot change it, that does not count. */
function same(before: Token, token: Token): boolean {
  if (before.type !== token.type) return false
  if ((before as Tokens.Generic).text !== (token as Tokens.Generic).text) return false
  if (before.raw === token.raw) return true
  return ['paragraph', 'heading', 'table', 'hr'].includes(token.type) && bare(before.raw) === bare(token.raw)
}

const bare = (raw: string) => raw.replace(/\n+$/, '')

/** Adds to a code block or list what it has more than before, in place. */
function grow(before: Block, token: Token): boolean {
  if (before.token.type === 'code' && token.type === 'code') return growCode(before, token as Tokens.Code)
  if (before.token.type === 'list' && token.type === 'list') return growList(before, token as Tokens.List)
  return false
}

function growCode(before: Block, token: Tokens.Code): boolean {
  const old = before.token as Tokens.Code
  if (languageOf(old) !== languageOf(token) || !token.text.startsWith(old.text)) return false
  const code = codeOf(before.node)
  const last = code.lastChild
  if (last && last.nodeType === 3) (last as Text).appendData(token.text.slice(old.text.length))
  else code.append(token.text)
  return true
}

function growList(before: Block, token: Tokens.List): boolean {
  const old = before.token as Tokens.List
  if (old.ordered !== token.ordered || old.start !== token.start || old.loose !== token.loose) return false
  const list = before.node as HTMLElement
  const items = [...list.childNodes]
  token.items.forEach((item, place) => {
    const node = items[place]
    if (node && old.items[place]?.raw === item.raw && old.items[place]?.loose === item.loose) return
    const made = listItem(item, 1)
    if (node) node.replaceWith(made)
    else list.append(made)
  })
  for (const extra of items.slice(token.items.length)) extra.remove()
  return true
}

function block(token: Token, depth: number): HTMLElement {
  if (depth > DEPTH_MAX) return element('p', text(token.raw))
  switch (token.type) {
    case 'heading':
      // The page's own headings come first in the outline.
      return element(`h${Math.min(6, (token as Tokens.Heading).depth + 2)}`, ...inline(token.tokens, depth))
    case 'paragraph':
      return element('p', ...inline(token.tokens, depth))
    case 'text':
      return element('span', ...(token.tokens ? inline(token.tokens, depth) : [text(decode((token as Tokens.Text).text))]))
    case 'code':
      return codeBlock(token as Tokens.Code)
    case 'blockquote':
      return element('blockquote', ...(token.tokens ?? []).map((inner) => block(inner, depth + 1)))
    case 'list':
      return list(token as Tokens.List, depth)
    case 'table':
      return table(token as Tokens.Table, depth)
    case 'hr':
      return element('hr')
    case 'space':
      return element('span')
    case 'checkbox':
      return checkbox(token as Tokens.Checkbox)
    default:
      return classed(element('p', text(token.raw.trimEnd())), 'raw')
  }
}

function list(token: Tokens.List, depth: number): HTMLElement {
  const made = element(token.ordered ? 'ol' : 'ul', ...token.items.map((item) => listItem(item, depth + 1)))
  if (token.ordered && token.start !== 1 && token.start !== '') made.setAttribute('start', String(token.start))
  return made
}

function listItem(item: Tokens.ListItem, depth: number): HTMLElement {
  const made = element('li', ...(item.tokens ?? []).map((inner) => block(inner, depth)))
  return item.task ? classed(made, 'task') : made
}

function checkbox(token: Tokens.Checkbox): HTMLElement {
  const box = classed(element('span', text(token.checked ? '☑ ' : '☐ ')), 'box')
  return box
}

function table(token: Tokens.Table, depth: number): HTMLElement {
  const cells = (row: Tokens.TableCell[], tag: string) =>
    element('tr', ...row.map((cell) => {
      const made = element(tag, ...inline(cell.tokens, depth + 1))
      return cell.align ? classed(made, `to-${cell.align}`) : made
    }))
  const made = element('table', element('thead', cells(token.header, 'th')), element('tbody', ...token.rows.map((row) => cells(row, 'td'))))
  const scroller = classed(element('div', made), 'scroll-x')
  scroller.setAttribute('tabindex', '0')
  scroller.setAttribute('role', 'group')
  scroller.setAttribute('aria-label', 'Table')
  return scroller
}

function codeBlock(token: Tokens.Code): HTMLElement {
  const copy = element('button', text('Copy'))
  copy.setAttribute('type', 'button')
  copy.setAttribute('data-copy', '')
  const language = languageOf(token)
  const head = classed(element('div', classed(element('span', text(language)), 'language'), copy), 'code-head')
  const pre = element('pre', element('code', text(token.text)))
  pre.setAttribute('tabindex', '0')
  return classed(element('div', head, pre), 'code')
}

function codeOf(node: Node): HTMLElement {
  return (node.lastChild as HTMLElement).firstChild as HTMLElement
}

/** The first word after the fence, as far as it can be a name. */
function languageOf(token: Tokens.Code): string {
  return /^[\w+#.-]{1,20}/.exec(token.lang ?? '')?.[0] ?? ''
}

function inline(given: Token[] | undefined, depth: number): Node[] {
  return (given ?? []).map((token) => inlineNode(token, depth + 1))
}

function inlineNode(token: Token, depth: number): Node {
  if (depth > DEPTH_MAX) return text(token.raw)
  switch (token.type) {
    case 'text':
      return token.tokens ? element('span', ...inline(token.tokens, depth)) : text(decode((token as Tokens.Text).text))
    case 'escape':
      return text((token as Tokens.Escape).text)
    case 'strong':
    case 'em':
    case 'del':
      return element(token.type, ...inline(token.tokens, depth))
    case 'codespan':
      return element('code', text((token as Tokens.Codespan).text))
    case 'br':
      return element('br')
    case 'link':
      return link(token as Tokens.Link, inline(token.tokens, depth))
    case 'image':
      return link(token as Tokens.Image, [text(`Picture: ${(token as Tokens.Image).text || 'no description'}`)])
    default:
      return text(token.raw)
  }
}

/** A link to the web, with its host beside it where the words do not name it; anything else is words. */
function link(token: Tokens.Link | Tokens.Image, inside: Node[]): Node {
  const address = decode(token.href)
  const target = webAddress(address)
  if (!target) {
    const named = token.text === address ? [] : [classed(element('span', text(` (${address})`)), 'host')]
    return classed(element('span', ...inside, ...named), 'path')
  }
  const made = element('a', ...inside) as HTMLAnchorElement
  made.setAttribute('href', target.href)
  made.setAttribute('rel', 'noopener noreferrer')
  made.setAttribute('target', '_blank')
  const said = target.protocol === 'mailto:' ? target.pathname : target.host
  if (namesHost(token.text, target, said)) return made
  return element('span', made, classed(element('span', text(` (${said})`)), 'host'))
}

/** The words are the address itself, and not another one that only looks like it. */
function namesHost(words: string, target: URL, said: string): boolean {
  const plain = words.trim().toLowerCase()
  if (plain === target.href.toLowerCase() || `${plain}/` === target.href.toLowerCase()) return true
  if (target.protocol === 'mailto:') return plain === said.toLowerCase()
  const bare = plain.replace(/^https?:\/\//, '')
  return bare === said || bare.startsWith(`${said}/`)
}

export function webAddress(address: string): URL | null {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return null
  try {
    const url = new URL(address)
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) && !url.username && !url.password ? url : null
  } catch {
    return null
  }
}

const NAMED: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', hellip: '…', mdash: '—', ndash: '–', rarr: '→', larr: '←', times: '×' }

/** Character references, as far as they are met; others stay as they are. */
function decode(given: string): string {
  if (!given.includes('&')) return given
  return given.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(\w{2,8}));/g, (all, decimal, hex, name) => {
    if (name) return Object.hasOwn(NAMED, name as string) ? NAMED[name as string]! : all
    const code = decimal ? Number(decimal) : parseInt(hex as string, 16)
    return code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : '\ufffd'
  })
}

function element(tag: string, ...inside: Node[]): HTMLElement {
  const made = document.createElement(tag)
  made.append(...inside)
  return made
}

function classed(made: HTMLElement, name: string): HTMLElement {
  made.setAttribute('class', name)
  return made
}

function text(value: string): Text {
  return document.createTextNode(value)
}
