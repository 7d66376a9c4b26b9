import { expect, test } from 'vitest'
import { faults, startFaults } from './machine-faults'
import { deliver } from './connection'

test('what is wrong is what the server said last, and nothing after a greeting', () => {
  startFaults()
  deliver({ on: 'faults', faults: ['The session store cannot be used.', 'Permission rules cannot be read.'] })
  expect(faults.value).toHaveLength(2)
  deliver({ on: 'faults', faults: [] })
  expect(faults.value).toEqual([])
  deliver({ on: 'faults', faults: ['Permission rules cannot be read.'] })
  deliver({ on: 'hello', version: '', host: '', role: 'owner', device: null, makesRules: true, folder: '/', folders: [], sandbox: '', pushKey: null, now: 0 })
  expect(faults.value).toEqual([])
})
