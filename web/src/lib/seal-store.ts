// Where this browser keeps its keys for sealed machines: IndexedDB, because only there can a key be kept that
// nobody can read out, not even this page.

export interface StoredMachine {
  machine: string
  /** This device's own key pair for this machine. */
  privateKey: CryptoKey
  point: Uint8Array<ArrayBuffer>
  /** The machine's public key. */
  machinePoint: Uint8Array<ArrayBuffer>
  role: string
  pairedAt: number
}

/** Given, so that tests need no browser. */
export interface KeyStore {
  all(): Promise<StoredMachine[]>
  put(kept: StoredMachine): Promise<void>
  drop(machine: string): Promise<void>
}

const NAME = 'ropewalk-keys'
const STORE = 'machines'

export const browserStore: KeyStore = {
  all: () => within('readonly', (store) => store.getAll() as IDBRequest<StoredMachine[]>),
  put: async (kept) => void (await within('readwrite', (store) => store.put(kept))),
  drop: async (machine) => void (await within('readwrite', (store) => store.delete(machine))),
}

async function within<T>(mode: IDBTransactionMode, work: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const database = await opened()
  try {
    return await new Promise<T>((resolve, reject) => {
      const transaction = database.transaction(STORE, mode, { durability: 'strict' })
      const request = work(transaction.objectStore(STORE))
      transaction.oncomplete = () => resolve(request.result)
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error('This browser could not store the keys. Allow this site to store data, then try again.'))
    })
  } finally {
    database.close()
  }
}

function opened(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1)
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: 'machine' })
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error ?? new Error('This browser could not store the keys. Allow this site to store data, then try again.'))
    request.onblocked = () => reject(new Error('Could not store the keys, because another tab uses them. Close it, then try again.'))
  })
}
