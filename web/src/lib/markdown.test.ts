import { beforeAll, describe, expect, test } from 'vitest'
import { FakeNode, fakeDocument, numbers } from '../testing/fake-dom'
import { MarkdownView, webAddress } from './markdown'

beforeAll(fakeDocument)

function shown(text: string): FakeNode {
  const host = new FakeNode('host')
  new MarkdownView(host as unknown as HTMLElement).update(text, true)
  return host
}

const PIECES = [
  'Some words', ' and *more*', '\n', '\n\n', '- one\n', '- two', '\n  1. deep\n', '```rust\n', 'fn main() {}\n', '```\n', '> said\n', '***', '---\n', '# Head', '| a | b |\n',
  '|---|---|\n', '| 1 | `2` |\n', '    code\n', '[x](https://a.example/)', '<div>', '</div>\n', '<!-- c', '-->', '\\', '&amp;', '~~', '===\n', '1. x\n', '\t', 'é😀', '\r\n', '**', '_', '`', '[a]: http://b.example\n', '[a]', '![p](https://c.example/p.png)', '- [ ] task\n', '\n\n\n', '<script>', '</script>\n', '$$', '~~~\n',
]

describe('text that grows', () => {
  test('in any pieces it ends as the text written at once', () => {
    for (let seed = 1; seed <= 200; seed += 1) {
      const next = numbers(seed)
      const host = new FakeNode('host')
      const view = new MarkdownView(host as unknown as HTMLElement)
      let text = ''
      for (let count = next(40) + 2; count > 0; count -= 1) {
        const piece = PIECES[next(PIECES.length)] ?? ''
        const cut = next(piece.length + 1)
        for (const part of [piece.slice(0, cut), piece.slice(cut)]) {
          text += part
          view.update(text)
        }
      }
      view.update(text, true)
      expect(host.written(), JSON.stringify(text)).toBe(shown(text).written())
    }
  })

  test('settled blocks keep their nodes', () => {
    const host = new FakeNode('host')
    const view = new MarkdownView(host as unknown as HTMLElement)
    let text = 'first\n\nsecond\n\nthird\n\n'
    view.update(text)
    const first = host.childNodes[0]
    for (let count = 0; count < 50; count += 1) view.update((text += `more ${count}\n\n`))
    expect(host.childNodes[0]).toBe(first)
    expect(host.childNodes).toHaveLength(53)
  })

  test('a code block grows in its own node', () => {
    const host = new FakeNode('host')
    const view = new MarkdownView(host as unknown as HTMLElement)
    view.update('```js\nlet a')
    const block = host.childNodes[0]
    view.update('```js\nlet a = 1\nlet b')
    expect(host.childNodes[0]).toBe(block)
    expect(host.written()).toContain('let a = 1\\nlet b')
  })

  test('other text than before starts over', () => {
    const host = new FakeNode('host')
    const view = new MarkdownView(host as unknown as HTMLElement)
    view.update('one\n\ntwo\n\nthree\n\nfour\n\n')
    view.update('another')
    expect(host.written()).toBe('<host><p>another</p></host>')
  })

  test('text that grows although it was whole is read as one', () => {
    const host = new FakeNode('host')
    const view = new MarkdownView(host as unknown as HTMLElement)
    view.update('one **two', true)
    view.update('one **two** three', true)
    expect(host.written()).toBe('<host><p>one <strong>two</strong> three</p></host>')
  })

  test('code is reported once, when it cannot change', () => {
    const told: string[] = []
    const host = new FakeNode('host') as unknown as HTMLElement
    const view = new MarkdownView(host, { settled: (_, language) => told.push(language) })
    let text = '```rust\nfn a() {}\n```\n\nx\n\n'
    view.update(text)
    expect(told).toEqual([])
    for (const more of ['y\n\n', 'z\n\n']) view.update((text += more))
    view.update(text, true)
    expect(told).toEqual(['rust'])
  })
})

const ALLOWED_TAGS = new Set(['host', '#text', 'p', 'span', 'a', 'strong', 'em', 'del', 'code', 'pre', 'div', 'button', 'br', 'hr', 'ul', 'ol', 'li', 'blockquote', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'h3', 'h4', 'h5', 'h6'])
const ALLOWED_ATTRIBUTES = new Set(['class', 'href', 'rel', 'target', 'start', 'type', 'data-copy', 'tabindex', 'role', 'aria-label'])

const HOSTILE = [
  '<script>alert(1)</script>', '<img src=x onerror=alert(1)>', '<svg/onload=alert(1)>', '<iframe srcdoc="<script>alert(1)</script>">', '[x](javascript:alert(1))', '[x](JaVaScRiPt:alert(1))',
  '[x](java\nscript:alert(1))', '[x](&#106;avascript:alert(1))', '[x](&#x6A;avascript&colon;alert(1))', '[x](data:text/html,<script>alert(1)</script>)', '[x](vbscript:msgbox)', '[x](file:///etc/passwd)',
  '[x](//evil.example)', '[x](\\\\evil.example\\a)', '[x](https://good.example@evil.example/)', '![x](https://evil.example/beacon.png)', '![x](javascript:alert(1))', '<a href="javascript:alert(1)">x</a>',
  '[x](<javascript:alert(1)>)', '<javascript:alert(1)>', '<https://evil.example/"onclick="alert(1)>', '[a]: javascript:alert(1)\n\n[a]', '`<img src=x onerror=alert(1)>`', '```"><script>alert(1)</script>\nx\n```',
  '<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>', '<noscript><p title="</noscript><img src=x onerror=alert(1)>">', '# <b onmouseover=alert(1)>x</b>', '| <img src=x onerror=alert(1)> |\n|-|\n| [x](javascript:1) |',
  '- [ ] <input autofocus onfocus=alert(1)>', '> <object data="data:text/html,x">', '<!--><script>alert(1)</script>-->', '[<img src=x onerror=alert(1)>](https://a.example)', `${'> '.repeat(5000)}x`, `${'['.repeat(3000)}x`, `${'*'.repeat(6000)}`, `${'- '.repeat(3000)}x`, '\u0000<script>\u0000', '[x](https://a.example "\\"><script>alert(1)</script>")',
]

describe('hostile text', () => {
  test.each(HOSTILE)('case %# makes only known elements, and links only to the web', (text) => {
    for (const node of shown(text).all()) {
      expect(ALLOWED_TAGS).toContain(node.tag)
      for (const name of node.attributes.keys()) expect(ALLOWED_ATTRIBUTES).toContain(name)
      const href = node.attributes.get('href')
      if (href !== undefined) expect(href).toMatch(/^(https?:\/\/|mailto:)/)
      if (node.tag === 'a') expect(node.attributes.get('rel')).toBe('noopener noreferrer')
    }
  })

  test('a link says its host where its words do not', () => {
    expect(shown('[bank.example](https://evil.example/x)').written()).toContain(' (evil.example)')
    expect(shown('[https://bank.example](https://bank.example.evil.example)').written()).toContain(' (bank.example.evil.example)')
    expect(shown('<https://a.example/x>').written()).not.toContain('(a.example)')
  })

  test('addresses with a user name, and schemes that run something, are no links', () => {
    for (const bad of ['javascript:1', 'https://u:p@a.example', 'data:,x', '//a.example', 'ftp://a.example', ' https://a.example', 'http://']) expect(webAddress(bad)).toBeNull()
    expect(webAddress('HTTPS://a.example')?.href).toBe('https://a.example/')
  })
})

describe('plain cases', () => {
  test.each([
    ['a *b* **c** ~~d~~ `e`', '<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e</code></p>'],
    ['# T', '<h3>T</h3>'],
    ['3. x\n4. y', '<ol start="3"><li><span>x</span></li><li><span>y</span></li></ol>'],
    ['a &lt;b&gt; &amp; &bogus;', '<p>a <b> & &bogus;</p>'],
    ['[file](src/main.rs)', '<p><span class="path">file<span class="host"> (src/main.rs)</span></span></p>'],
    ['- [x] done', '<ul><li class="task"><span class="box">☑ </span><span>done</span></li></ul>'],
  ])('%s', (text, expected) => {
    expect(shown(text).written()).toBe(`<host>${expected}</host>`)
  })
})
