// Characters that nobody sees. Whoever decides has to see them: they hide, look like a space, or turn the
// direction of others.

/** Controls, joiners and marks of direction, fillers that look like a space, selectors and tags. */
export const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu

/** The same without the joiners and selectors that emoji and whole languages are written with. */
const MISLEADING = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]|[\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu

/** A name or a title without what hides or turns the direction of others; servers of today send none of it. */
export function plainName(text: string): string {
  return text.replace(MISLEADING, '')
}

export function codePointLabel(char: string): string {
  return `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`
}

/**
 * Text whose every character can be seen: what somebody allows must be what is written. Characters
 * that cannot be seen are written as their number.
 */
export function visible(text: string): string {
  return text.replace(HIDDEN, (char) => `⟨${codePointLabel(char)}⟩`)
}
