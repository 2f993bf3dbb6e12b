package cmac

import (
	"fmt"
	"math/bits"

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

const lanes = 20

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
	return link.Reading{
		Good:      s.Good(),
		Aligned:   s.aligned(),
		Status:    fmt.Sprintf("%#x", s.Rx),
		Diagnosis: s.Diagnosis(m.cfg.FEC),
	}, nil
}

// Good reports that the link works.
func (s Status) Good() bool { return s.Rx == good }

// aligned reports that only the peer's view is missing: while both ends send
// remote fault each sees the other's, and one of them must go on.
func (s Status) aligned() bool {
	const bad = 1<<2 | 1<<3 | 1<<4 | 1<<6 | 1<<7 | 1<<8 // misaligned … received local fault
	return s.Rx != 0xFFFFFFFF && regs.CMACStatRxAligned.Get(s.Rx) == 1 && s.Rx&bad == 0
}

// Diagnosis says what is wrong and what to look at, "" when nothing is.
func (s Status) Diagnosis(fec FEC) string {
	has := func(f regs.Field) bool { return f.Get(s.Rx) != 0 }
	aligned := has(regs.CMACStatRxAligned)
	switch {
	case s.Good():
		return ""
	case s.Rx == 0xFFFFFFFF:
		return "the MAC does not answer: its clock stopped, or the bitstream is gone"
	case aligned && has(regs.CMACStatRxHiBER):
		return "aligned, but the bit error rate is high: check module, cable and fibre ends" + s.fecHint(fec)
	case s.syncErrors() == lanes:
		// Without light the lanes do not synchronise either; the core cannot
		// tell the two apart.
		return "sync errors on all lanes: if the module sees light, FEC differs from the peer (this end: " + fecName(fec) +
			"); if not, no signal arrives: check module, cable, low power mode, reset and reference clock"
	case s.BlockLock&(1<<lanes-1) == 1<<lanes-1 && !aligned:
		return "all lanes locked, but not aligned: alignment markers do not come: FEC differs from the peer, or lanes are crossed" + s.fecHint(fec)
	case has(regs.CMACStatRxReceivedLocalFault):
		return "the peer sends local fault: its receiver sees no signal of ours: check our transmitter (TX disable, low power mode) and the fibre"
	case aligned && has(regs.CMACStatRxRemoteFault):
		return "the peer does not see us (remote fault): check our transmitter (TX disable, low power mode) and the fibre"
	case has(regs.CMACStatRxLocalFault) && has(regs.CMACStatRxInternalLocalFault):
		return "no usable signal (local and internal local fault): check module, cable, low power mode, reset and reference clock"
	case has(regs.CMACStatRxRemoteFault):
		return "the peer does not see us (remote fault), and our receiver is not aligned: check the fibre and FEC of both ends"
	case has(regs.CMACStatRxMisaligned) || has(regs.CMACStatRxAlignedErr):
		return "alignment is lost again and again: check the signal, and FEC of both ends"
	case s.syncErrors() > 0:
		return fmt.Sprintf("%d of %d lanes do not synchronise (%#05x): check the fibre and the lanes of the module", s.syncErrors(), lanes, s.SyncErr)
	case !aligned:
		return "not aligned: no peer, or it sends nothing"
	}
	return fmt.Sprintf("receive status %#x: damaged frames or ordered sets arrive", s.Rx)
}

func (s Status) syncErrors() int { return bits.OnesCount32(s.SyncErr & (1<<lanes - 1)) }

func fecName(fec FEC) string {
	if fec == RSFEC {
		return "RS-FEC"
	}
	return "no FEC"
}

func (s Status) fecHint(fec FEC) string {
	if fec == RSFEC {
		return ""
	}
	return "; SR4 modules and copper cables need RS-FEC at both ends"
}
