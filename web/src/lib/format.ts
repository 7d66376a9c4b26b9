// Quantities and states in words.

import { signal } from '@preact/signals'
import type { AskView, Card, KeptOf } from '../wire'
import { plainName } from './hidden-characters'
import { clockSkew } from './connection'

export { plainName, visible } from './hidden-characters'

/** The time, for everything that counts. Ticks only while somebody can see it. */
export const currentTime = signal(Date.now())

/** The same for what is counted in minutes: a long list need not be painted every second. */
const slowNow = signal(Date.now())
const SLOW_MS = 15_000

export function startClock(): void {
  setInterval(() => {
    if (document.visibilityState !== 'visible') return
    currentTime.value = Date.now()
    if (currentTime.value - slowNow.value >= SLOW_MS) slowNow.value = currentTime.value
  }, 1_000)
}

export function duration(ms: number): string {
  const seconds = Math.round(ms / 1_000)
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return seconds % 60 === 0 ? `${minutes} min` : `${minutes} min ${seconds % 60} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** How long ago the server says it was. */
export function age(at: number): string {
  const seconds = Math.max(0, Math.floor((slowNow.value + clockSkew.value - at) / 1_000))
  if (seconds < 60) return 'now'
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h`
  if (seconds < 30 * 86_400) return `${Math.floor(seconds / 86_400)} d`
  return new Date(at).toLocaleDateString()
}

/** What was done, and how long ago. */
export function ago(did: string, at: number): string {
  const since = age(at)
  if (since === 'now') return `${did} just now`
  return /^\d+ (min|h|d)$/.test(since) ? `${did} ${since} ago` : `${did} ${since}`
}

export function clockTime(at: number): string {
  const date = new Date(at)
  const time = date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString()} ${time}`
}

export function money(usd: number): string {
  if (usd === 0) return '$0'
  return usd < 0.01 ? '< $0.01' : `$${usd.toFixed(2)}`
}

export function byteSize(count: number): string {
  if (count < 1_024) return `${count} bytes`
  return count < 1_048_576 ? `${Math.round(count / 1_024)} KB` : `${(count / 1_048_576).toFixed(1)} MB`
}

export function pluralize(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`
}

/** What a server says of an error begins small and has no end; on a page it stands alone. */
export function asSentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1)
  return /[.!?…]$/.test(first) ? first : `${first}.`
}

/** The last part of a path. */
export function baseName(path: string): string {
  return path.replace(/\/+$/, '').split('/').at(-1) || path
}

export const STATE_LABELS: Record<Card['state'], string> = {
  waiting: 'Needs you',
  working: 'Working',
  elsewhere: 'In use elsewhere',
  done: 'Done',
  failed: 'Failed',
  empty: 'New',
}

/** A line of Markdown without its marks, where it is only a hint of what was said. */
export function withoutMarkdown(line: string): string {
  return line.replace(/(^|\s)#{1,6}\s/g, '$1').replace(/\*{1,3}|`{1,3}/g, '')
}

export function titleOf(card: { title: string | null; folder: string; branch?: KeptOf | undefined }): string {
  const title = plainName(card.title ?? '').trim() || `Session in ${baseName(card.folder)}`
  return card.branch ? `${title} (before the restore on ${dateOnly(card.branch.at)})` : title
}

/** A date without its time. */
export function dateOnly(at: number): string {
  return new Date(at).toLocaleDateString(undefined, { dateStyle: 'medium' })
}

const ASK_TITLES: Record<string, string> = {
  execute: 'Run command',
  edit: 'Edit file',
  delete: 'Delete',
  move: 'Move file',
  fetch: 'Fetch from the web',
  read: 'Read file',
  search: 'Search',
  switchMode: 'Change mode',
}

export function askTitle(ask: AskView): string {
  if (ask.question) return 'Question'
  return ASK_TITLES[ask.kind] ?? `Use ${ask.tool}`
}

const RISKS: Record<string, string> = { low: 'Low risk', medium: 'Medium risk', high: 'High risk', critical: 'Critical risk' }

export function riskLabel(risk: string): string {
  return RISKS[risk] ?? 'Unknown risk'
}

/** High and critical risk, and any word that this page does not know. */
export function isGrave(risk: string): boolean {
  return risk !== 'low' && risk !== 'medium'
}
