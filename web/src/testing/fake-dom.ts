// As much of a document as the tests of Markdown need, and a way to read it.

export class FakeNode {
  readonly nodeType: number = 1
  parent: FakeNode | null = null
  childNodes: FakeNode[] = []
  readonly attributes = new Map<string, string>()

  constructor(readonly tag: string) {}

  get firstChild(): FakeNode | null { return this.childNodes[0] ?? null }
  get lastChild(): FakeNode | null { return this.childNodes.at(-1) ?? null }

  append(...nodes: (FakeNode | string)[]): void {
    for (const node of nodes) {
      const made = typeof node === 'string' ? new FakeText(node) : node
      made.parent = this
      this.childNodes.push(made)
    }
  }

  setAttribute(name: string, value: string): void { this.attributes.set(name, value) }

  remove(): void {
    const place = this.parent?.childNodes.indexOf(this) ?? -1
    if (place >= 0) this.parent?.childNodes.splice(place, 1)
    this.parent = null
  }

  replaceWith(node: FakeNode): void {
    const place = this.parent?.childNodes.indexOf(this) ?? -1
    if (!this.parent || place < 0) return
    this.parent.childNodes[place] = node
    node.parent = this.parent
    this.parent = null
  }

  replaceChildren(): void { this.childNodes = [] }

  /** Neighbouring texts count as one, as they do for a reader. */
  written(): string {
    const attributes = [...this.attributes].map(([name, value]) => ` ${name}=${JSON.stringify(value)}`).join('')
    return `<${this.tag}${attributes}>${this.childNodes.map((child) => child.written()).join('')}</${this.tag}>`
  }

  all(): FakeNode[] { return [this, ...this.childNodes.flatMap((child) => child.all())] }
}

export class FakeText extends FakeNode {
  override readonly nodeType = 3
  constructor(public data: string) { super('#text') }
  appendData(more: string): void { this.data += more }
  override written(): string { return JSON.stringify(this.data).slice(1, -1) }
}

export function fakeDocument(): void {
  Object.assign(globalThis, {
    document: {
      createElement: (tag: string) => new FakeNode(tag),
      createTextNode: (value: string) => new FakeText(value),
    },
  })
}

/** A generator of numbers that is the same in every run. */
export function numbers(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}
