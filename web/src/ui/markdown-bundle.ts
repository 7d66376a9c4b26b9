// What showing Markdown takes, as one piece that is loaded after the rest.

export { colourWhenSeen } from '../lib/highlight'
export { MarkdownView } from '../lib/markdown'
