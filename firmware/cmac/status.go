package cmac

import (
	"fmt"

	"rocelink/firmware/link"
	"rocelink/fpga/regs"
)

var _ link.MAC = (*MAC)(nil)

// Status is the receiver's state at present.
type Status struct {
	Rx        uint32 // CMAC.StatRx
	BlockLock uint32 // one bit a lane
	LaneSync  uint32
	SyncErr   uint32
}

// good is the only receive status of a link that works: aligned, no fault, no
// error (PG203, STAT_RX_STATUS).
const good = 0x3

const (
	lanes    = 20 // of the PCS (IEEE 802.3 clause 82)
	allLanes = 1<<lanes - 1
)

// Status reads the state. Each latched register is read twice: the first read
// gives what happened since the last one and clears it, the second the present.
func (m *MAC) Status() (Status, error) {
	var s Status
	for _, r := range []struct {
		name string
		reg  regs.Reg
		to   *uint32
	}{
		{"StatRx", regs.CMACStatRx, &s.Rx},
		{"StatBlockLock", regs.CMACStatBlockLock, &s.BlockLock},
		{"StatLaneSync", regs.CMACStatLaneSync, &s.LaneSync},
		{"StatSyncErr", regs.CMACStatSyncErr, &s.SyncErr},
	} {
		for range 2 {
			v, err := r.reg.Read(m.bus)
			if err != nil {
				return Status{}, fmt.Errorf("read CMAC.%s: %w", r.name, err)
			}
			*r.to = v
		}
	}
	return s, nil
}

// Read implements link.MAC.
func (m *MAC) Read() (link.Reading, error) {
	s, err := m.Status()
	if err != nil {
		return link.Reading{}, err
	}
	return s.reading(), nil
}

func (s Status) reading() link.Reading {
	has := func(f regs.Field) bool { return f.Get(s.Rx) != 0 }
	r := link.Reading{Good: s.Rx == good, Aligned: s.aligned(), Status: fmt.Sprintf("%#x", s.Rx), Lanes: lanes}
	if s.Rx == 0xFFFFFFFF {
		r.Silent = true
		return r
	}
	r.Locked = s.BlockLock & allLanes
	r.Synced = s.LaneSync & allLanes &^ s.SyncErr
	r.MarkersLost = has(regs.CMACStatRxAlignedErr)
	r.LocalFault = has(regs.CMACStatRxLocalFault) || has(regs.CMACStatRxInternalLocalFault)
	r.RemoteFault = has(regs.CMACStatRxRemoteFault)
	r.PeerFault = has(regs.CMACStatRxReceivedLocalFault)
	r.HighBER = has(regs.CMACStatRxHiBER)
	return r
}

// aligned reports that only the peer's view is missing: while both ends send
// remote fault each sees the other's, and one of them must go on.
func (s Status) aligned() bool {
	const bad = 1<<2 | 1<<3 | 1<<4 | 1<<6 | 1<<7 | 1<<8 // misaligned … received local fault
	return s.Rx != 0xFFFFFFFF && regs.CMACStatRxAligned.Get(s.Rx) == 1 && s.Rx&bad == 0
}
