package mrmac

import (
	"fmt"

	"rocelink/fpga/regs"
)

// table are the counters the driver keeps, by register name in snake case.
var table = [...]struct {
	name string
	reg  regs.Reg64
}{
	{"tx_packets", regs.MRMACTxPackets}, {"tx_good_packets", regs.MRMACTxGoodPackets},
	{"rx_packets", regs.MRMACRxPackets}, {"rx_good_packets", regs.MRMACRxGoodPackets}, {"rx_bad_fcs", regs.MRMACRxBadFCS},
	{"rsfec_corrected", regs.MRMACRSFECCorrected}, {"rsfec_uncorrected", regs.MRMACRSFECUncorrected},
}

const (
	counters    = len(table)
	counterMask = 1<<48 - 1 // PG314, statistics counters
)

// Sample ticks the counters once and adds what happened since the tick before.
// The first sample after a reset is discarded. Every reader shares the result.
func (m *MAC) Sample() error {
	if err := regs.MRMACTick.Write(m.bus, regs.MRMACTickSnapshot.Mask()); err != nil {
		return fmt.Errorf("write MRMAC.Tick: %w", err)
	}
	var delta [counters]uint64
	for i, c := range table {
		v, err := c.reg.Read(m.bus)
		if err != nil {
			return fmt.Errorf("read MRMAC counter %s: %w", c.name, err)
		}
		delta[i] = v & counterMask
	}
	if m.discard {
		m.discard = false
		return nil
	}
	for i, v := range delta {
		m.total[i] += v
	}
	return nil
}

// Each calls f for each counter, as of the last Sample.
func (m *MAC) Each(f func(name string, value uint64)) {
	for i, c := range table {
		f(c.name, m.total[i])
	}
}
