// What is shown was written by others. If a part of it cannot be painted, that part says so, and the rest
// of the page stays.

import { Component, type ComponentChildren } from 'preact'

interface BoundaryProps {
  words: string
  /** Another value tries again. */
  again: unknown
  children: ComponentChildren
}

interface BoundaryState {
  failed: boolean
  again: unknown
}

export class ErrorBoundary extends Component<BoundaryProps, BoundaryState> {
  override state: BoundaryState = { failed: false, again: this.props.again }

  static override getDerivedStateFromProps(props: BoundaryProps, state: BoundaryState): BoundaryState | null {
    return props.again === state.again ? null : { failed: false, again: props.again }
  }

  override componentDidCatch(error: unknown): void {
    console.error(error)
    this.setState({ failed: true })
  }

  override render() {
    if (!this.state.failed) return this.props.children
    return <p class="note-bar bad" role="alert"><span>{this.props.words}</span><button type="button" class="plain" onClick={() => this.setState({ failed: false })}>Try again</button></p>
  }
}
