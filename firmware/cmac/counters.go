package cmac

import (
	"fmt"

	"rocelink/fpga/regs"
)

// Counters are the events since the driver first configured the core, by
// register name. The core counts in 48 bits from tick to tick.
type Counters struct {
	Cycles                           uint64
	TxPackets, TxGoodPackets         uint64
	TxBytes, TxGoodBytes             uint64
	TxBadFCS, TxPause                uint64
	RxPackets, RxGoodPackets         uint64
	RxBytes, RxGoodBytes             uint64
	RxOversize, RxBadFCS, RxPause    uint64
	RSFECCorrected, RSFECUncorrected uint64
}

type counter struct {
	name string
	reg  regs.Reg64
	to   *uint64
}

func (c *Counters) table(fec bool) []counter {
	t := []counter{
		{"cycle_count", regs.CMACCycleCount, &c.Cycles},
		{"tx_packets", regs.CMACTxPackets, &c.TxPackets}, {"tx_good_packets", regs.CMACTxGoodPackets, &c.TxGoodPackets},
		{"tx_bytes", regs.CMACTxBytes, &c.TxBytes}, {"tx_good_bytes", regs.CMACTxGoodBytes, &c.TxGoodBytes},
		{"tx_bad_fcs", regs.CMACTxBadFCS, &c.TxBadFCS}, {"tx_pause", regs.CMACTxPause, &c.TxPause},
		{"rx_packets", regs.CMACRxPackets, &c.RxPackets}, {"rx_good_packets", regs.CMACRxGoodPackets, &c.RxGoodPackets},
		{"rx_bytes", regs.CMACRxBytes, &c.RxBytes}, {"rx_good_bytes", regs.CMACRxGoodBytes, &c.RxGoodBytes},
		{"rx_oversize", regs.CMACRxOversize, &c.RxOversize}, {"rx_bad_fcs", regs.CMACRxBadFCS, &c.RxBadFCS},
		{"rx_pause", regs.CMACRxPause, &c.RxPause},
	}
	if fec {
		t = append(t, counter{"rsfec_corrected", regs.CMACRSFECCorrected, &c.RSFECCorrected},
			counter{"rsfec_uncorrected", regs.CMACRSFECUncorrected, &c.RSFECUncorrected})
	}
	return t
}

// counterMask is the width of a statistics counter (PG203).
const counterMask = 1<<48 - 1

// Sample ticks the counters once and adds what happened since the tick before.
// The first sample after a configuration is discarded: the counters are not
// reset by it. Every reader shares the result, since a second tick would take
// events from the first.
func (m *MAC) Sample() (Counters, error) {
	if !m.pending {
		if err := m.write("Tick", regs.CMACTick, regs.CMACTickSnapshot.Mask()); err != nil {
			return m.total, err
		}
		m.pending = true
	}
	wait := m.cfg.Poll
	wait.Timeout = m.cfg.TickTimeout
	_, err := wait.Until(func() (bool, error) {
		v, err := regs.CMACTick.Read(m.bus)
		return regs.CMACTickSnapshot.Get(v) == 0, err
	})
	if err != nil {
		return m.total, fmt.Errorf("CMAC counter snapshot: %w", err)
	}
	m.pending = false
	var delta Counters
	counters := delta.table(m.cfg.FEC != NoFEC)
	for _, c := range counters {
		v, err := c.reg.Read(m.bus)
		if err != nil {
			return m.total, fmt.Errorf("read CMAC counter %s: %w", c.name, err)
		}
		*c.to = v & counterMask
	}
	if m.discard {
		m.discard = false
		return m.total, nil
	}
	for i, c := range m.total.table(m.cfg.FEC != NoFEC) {
		*c.to += *counters[i].to
	}
	return m.total, nil
}

// Total returns the counters as of the last Sample, without a tick.
func (m *MAC) Total() Counters { return m.total }

// Each calls f for each counter that the core has, by register name in snake
// case.
func (m *MAC) Each(f func(name string, value uint64)) {
	for _, c := range m.total.table(m.cfg.FEC != NoFEC) {
		f(c.name, *c.to)
	}
}
