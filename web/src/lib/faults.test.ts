import { expect, test } from 'vitest'
import { faults, startFaults } from './faults'
import { told } from './line'

test('what is wrong is what the server said last, and nothing after a greeting', () => {
  startFaults()
  told({ on: 'faults', faults: ['The session store cannot be used.', 'Permission rules cannot be read.'] })
  expect(faults.value).toHaveLength(2)
  told({ on: 'faults', faults: [] })
  expect(faults.value).toEqual([])
  told({ on: 'faults', faults: ['Permission rules cannot be read.'] })
  told({ on: 'hello', version: '', host: '', role: 'owner', device: null, makesRules: true, folder: '/', folders: [], sandbox: '', pushKey: null, now: 0 })
  expect(faults.value).toEqual([])
})
