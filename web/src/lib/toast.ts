// Short words at the edge of the page: what was done elsewhere, what did not work.

import { signal } from '@preact/signals'

export interface Toast {
  id: number
  text: string
  bad: boolean
}

const SHOWN_MS = 6_000
const SHOWN_MAX = 3

export const toasts = signal<readonly Toast[]>([])
let nextId = 1

export function toast(text: string, bad = false): void {
  const id = nextId++
  toasts.value = [...toasts.value.slice(1 - SHOWN_MAX), { id, text, bad }]
  setTimeout(() => dismiss(id), bad ? SHOWN_MS * 2 : SHOWN_MS)
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id)
}

/** The words of an error, for a person. */
export function errorText(error: unknown): string {
  return error instanceof Error && error.message ? error.message : 'Something went wrong, and no reason was given.'
}

/** Says it if this fails. Gives whether it was done. */
export async function toastOnError(doing: Promise<unknown>): Promise<boolean> {
  try {
    await doing
    return true
  } catch (error) {
    toast(errorText(error), true)
    return false
  }
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text)
    toast('Copied')
  } catch {
    // Plain HTTP beyond this machine is no secure context, and has no clipboard but this one.
    const area = document.createElement('textarea')
    area.value = text
    area.className = 'off-screen'
    document.body.append(area)
    area.select()
    const done = document.execCommand('copy')
    area.remove()
    toast(done ? 'Copied' : 'The browser does not allow this page to copy. Select the text and copy it yourself.', !done)
  }
}
