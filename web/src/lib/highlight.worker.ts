// Colours for code, computed beside the page so that it stays responsive.

import hljs from 'highlight.js/lib/core'
import bash from 'highlight.js/lib/languages/bash'
import cpp from 'highlight.js/lib/languages/cpp'
import css from 'highlight.js/lib/languages/css'
import diff from 'highlight.js/lib/languages/diff'
import go from 'highlight.js/lib/languages/go'
import java from 'highlight.js/lib/languages/java'
import json from 'highlight.js/lib/languages/json'
import markdown from 'highlight.js/lib/languages/markdown'
import python from 'highlight.js/lib/languages/python'
import rust from 'highlight.js/lib/languages/rust'
import sql from 'highlight.js/lib/languages/sql'
import typescript from 'highlight.js/lib/languages/typescript'
import xml from 'highlight.js/lib/languages/xml'
import yaml from 'highlight.js/lib/languages/yaml'
import ini from 'highlight.js/lib/languages/ini'

const languages = { bash, cpp, css, diff, go, ini, java, json, markdown, python, rust, sql, typescript, xml, yaml }
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language)
hljs.registerAliases(['ts', 'tsx', 'js', 'jsx', 'javascript', 'mjs'], { languageName: 'typescript' })
hljs.registerAliases(['sh', 'shell', 'zsh', 'console'], { languageName: 'bash' })
hljs.registerAliases(['toml'], { languageName: 'ini' })
hljs.registerAliases(['c', 'h', 'hpp', 'cc', 'c++'], { languageName: 'cpp' })

/** A piece of code and the kind of thing it is. */
export type Coloured = [kind: string | null, text: string]

interface Branch {
  scope?: string
  children: (Branch | string)[]
}

addEventListener('message', (event: MessageEvent<{ id: number; code: string; language: string }>) => {
  const { id, code, language } = event.data
  let pieces: Coloured[] | null = null
  try {
    if (hljs.getLanguage(language)) {
      const result = hljs.highlight(code, { language, ignoreIllegals: true })
      pieces = []
      flatten((result as unknown as { _emitter: { rootNode: Branch } })._emitter.rootNode, null, pieces)
    }
  } catch {
    pieces = null
  }
  postMessage({ id, pieces })
})

/** The innermost kind counts; neighbours of one kind are one piece. */
function flatten(branch: Branch, kind: string | null, into: Coloured[]): void {
  const mine = branch.scope ? (/^[a-z]+/.exec(branch.scope)?.[0] ?? kind) : kind
  for (const child of branch.children) {
    if (typeof child !== 'string') flatten(child, mine, into)
    else if (into.at(-1)?.[0] === mine) into[into.length - 1] = [mine, (into.at(-1)?.[1] ?? '') + child]
    else into.push([mine, child])
  }
}
