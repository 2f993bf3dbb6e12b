package mrmac

import (
	"fmt"

	"rocelink/firmware/link"
	"rocelink/fpga/regs"
)

var _ link.MAC = (*MAC)(nil)

const (
	lanes    = 20 // of the PCS (IEEE 802.3 clause 82)
	allLanes = 1<<lanes - 1
)

// Read takes the receiver's state at present. While nothing is received it
// repeats the port's reset.
func (m *MAC) Read() (link.Reading, error) {
	// What was sticky is of the past.
	if err := regs.MRMACStatRx.Write(m.bus, ^uint32(0)); err != nil {
		return link.Reading{}, fmt.Errorf("clear MRMAC.StatRx: %w", err)
	}
	var live, lock, fec uint32
	for _, r := range []struct {
		name string
		reg  regs.Reg
		to   *uint32
	}{
		{"StatRxLive", regs.MRMACStatRxLive, &live},
		{"StatBlockLock", regs.MRMACStatBlockLock, &lock},
		{"StatRxFECLive", regs.MRMACStatRxFECLive, &fec},
	} {
		v, err := r.reg.Read(m.bus)
		if err != nil {
			return link.Reading{}, fmt.Errorf("read MRMAC.%s: %w", r.name, err)
		}
		*r.to = v
	}
	r := m.reading(live, lock, fec)
	if m.listens && !r.Silent && !r.Aligned && !r.Good && m.now().Sub(m.resetAt) >= m.cfg.Again {
		if err := m.reset(); err != nil {
			return link.Reading{}, err
		}
		if err := m.enable(); err != nil {
			return link.Reading{}, err
		}
	}
	return r, nil
}

func (m *MAC) reading(live, lock, fec uint32) link.Reading {
	r := link.Reading{Status: fmt.Sprintf("%#x", live), Lanes: lanes}
	if live == ^uint32(0) {
		r.Silent = true
		return r
	}
	has := func(f regs.Field) bool { return f.Get(live) != 0 }
	r.LocalFault, r.RemoteFault = has(regs.MRMACStatRxLiveLocalFault), has(regs.MRMACStatRxLiveRemoteFault)
	r.HighBER = has(regs.MRMACStatRxLiveHiBER) || m.cfg.FEC == RSFEC && regs.MRMACStatRxFECLiveHiSER.Get(fec) == 1
	r.Locked = lock & allLanes
	if has(regs.MRMACStatRxLiveAligned) {
		r.Synced = r.Locked
	}
	// Lanes lock and codewords do not: markers are where the peer's FEC puts them.
	r.MarkersLost = r.Locked == allLanes && !has(regs.MRMACStatRxLiveAligned)
	r.Aligned = has(regs.MRMACStatRxLiveAligned) && !r.LocalFault && !r.HighBER
	r.Good = r.Aligned && has(regs.MRMACStatRxLiveStatus) && !r.RemoteFault
	return r
}
