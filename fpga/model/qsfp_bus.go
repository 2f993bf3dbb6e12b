package model

// write takes what is written to the module and returns how many bytes it
// acknowledges.
func (q *qsfp) write(data []byte) int {
	for i, v := range data {
		switch {
		case i == 0:
			q.pointer = v
			continue
		case i > maxWrite:
			return i
		}
		q.store(q.pointer, v)
		q.pointer = after(q.pointer)
	}
	return len(data)
}

// after is the register after another: within the lower or the upper half.
func after(at byte) byte { return at&halfBytes | (at+1)&(halfBytes-1) }

// store takes a value where the memory can be written.
func (q *qsfp) store(at, v byte) {
	switch {
	case at == memTxDisable:
		q.low[at] = v & alignmentMarkerLanes
	case at == memPage:
		// A page that is not there selects 00h (SFF-8636, page select).
		if v != pageThresholds {
			v = pageIdentity
		}
		q.low[at] = v
	case at > memTxDisable && at <= memCDR, at >= memMasks && at < memMasksEnd:
		q.low[at] = v
	}
}

// read fills data from the register on that was written last. Flags are cleared
// by it.
func (q *qsfp) read(data []byte, s surroundings, badSum bool) {
	for i := range data {
		at := q.pointer
		q.pointer = after(at)
		switch {
		case at < halfBytes:
			data[i] = q.low[at]
			if at >= memLOS && at < memFlagsEnd {
				q.low[at] = 0
			}
			if at == memTxDisable {
				data[i] |= s.txOff
			}
		case q.low[memPage] == pageThresholds:
			data[i] = q.limits[at-halfBytes]
		default:
			data[i] = q.up[at-halfBytes]
			if badSum && at-halfBytes == checkBase {
				data[i] ^= 0xFF
			}
		}
	}
}
