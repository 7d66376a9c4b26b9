// Pictures that go with a prompt: from the clipboard, dropped, or chosen.

import type { Picture } from '../wire'

const TYPES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp']
export const PICTURES_MAX = 4
const BYTES_MAX = 3 << 20

export interface ChosenPicture {
  picture: Picture
  name: string
  /** For showing it here; given back with [`forget`]. */
  address: string
}

/** Reads what can be sent; the second part says what cannot, and why. */
export async function readPictures(files: Iterable<File>, have: number): Promise<[ChosenPicture[], string[]]> {
  const chosen: ChosenPicture[] = []
  const problems: string[] = []
  for (const file of files) {
    const problem = problemOf(file, have + chosen.length)
    if (problem) problems.push(problem)
    else chosen.push({ picture: { mime: file.type, data: await base64(file) }, name: file.name || 'picture', address: URL.createObjectURL(file) })
  }
  return [chosen, problems]
}

export function revokePicture(chosen: ChosenPicture): void {
  URL.revokeObjectURL(chosen.address)
}

function problemOf(file: File, have: number): string | null {
  const name = file.name || 'The picture'
  if (!TYPES.includes(file.type)) return `${name} is not a PNG, JPEG, GIF or WebP picture.`
  if (file.size > BYTES_MAX) return `${name} is larger than 3 MB. Make it smaller first.`
  return have >= PICTURES_MAX ? `A prompt can have at most ${PICTURES_MAX} pictures.` : null
}

async function base64(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer())
  let text = ''
  for (let from = 0; from < bytes.length; from += 32_768) text += String.fromCharCode(...bytes.subarray(from, from + 32_768))
  return btoa(text)
}
