package model

import (
	"time"

	"rocelink/fpga/regs"
)

const (
	allLanes = 1<<20 - 1
	// cmacClockHz is the receive clock that CycleCount counts: 322.265625 MHz.
	cmacClockHz = 322_265_625
	counterMask = 1<<48 - 1 // PG203: statistics have 48 bits
	// alignmentMarkerLanes are the lanes of RS-FEC.
	alignmentMarkerLanes = 0xF
	// Four optical lanes carry the 20 lanes of the PCS.
	opticalLanes = 4
	perOptical   = 5
	pcsLanes     = 1<<perOptical - 1
	// Ethernet pads to 60 bytes and adds the FCS.
	minFrameBytes = 60
	fcsBytes      = 4
)

// FEC is how the peer uses RS-FEC.
type FEC uint8

// The peer's RS-FEC settings.
const (
	FECFollows FEC = iota // whatever we use, so that it never differs
	FECOff
	FECOn
	FECDiffers // never what we use
)

// Link is the Ethernet link as the MAC finds it: the fibre and the peer at its
// other end. The zero value is a healthy peer with which alignment takes no
// time.
type Link struct {
	AlignTime time.Duration // from a usable signal to alignment
	Dark      bool          // nothing arrives
	// DarkLanes are optical lanes on which nothing arrives: bit 0 is lane 1. Each
	// carries five of the 20 PCS lanes and one of RS-FEC.
	DarkLanes uint8
	// NoClock: the transceivers have no reference clock, so that their reset does
	// not end and nothing is sent or received.
	NoClock bool
	FEC     FEC
	// RemoteFault makes the peer send remote fault, as it also does by itself
	// as long as it does not see us.
	RemoteFault bool
	LocalFault  bool // the peer sends local fault
	HighBER     bool // so many bit errors that no frame is good
	// Waits makes the peer send nothing before it sees us send. Two ends that
	// wait for alignment before they send anything never come up.
	Waits bool
	// CorrectedPerSecond are the codewords that RS-FEC corrects.
	CorrectedPerSecond uint64
}

// latched is a clear-on-read status register: its present value, and what it
// was at some time since it was read.
type latched struct {
	reg       regs.Reg
	low, high uint32 // bits that latch
	live      uint32
	held      uint32
}

func newLatched(t regs.Block, r regs.Reg) latched {
	l := latched{reg: r}
	for _, reg := range t.Regs {
		if reg.Offset != uint32(r) {
			continue
		}
		for _, f := range reg.Fields {
			mask := regs.Field{LSB: f.LSB, Width: f.Width}.Mask()
			switch f.Latch {
			case regs.LatchLow:
				l.low |= mask
			case regs.LatchHigh:
				l.high |= mask
			}
		}
	}
	return l
}

// set takes a new value, in which events happened for an instant.
func (l *latched) set(v, events uint32) {
	l.live = v
	seen := v | events
	l.held = (l.held|seen)&l.high | l.held&v&l.low | v&^(l.high|l.low)
}

// read returns what was latched and starts anew from the present value.
func (l *latched) read() uint32 {
	v := l.held
	l.held = l.live
	return v
}

// statistic is a counter that software sees after a tick.
type statistic struct {
	reg   regs.Reg64
	count uint64
}

// The statistics, in the order of cmac.stats.
const (
	statTxPackets = iota
	statTxGoodPackets
	statTxBytes
	statTxGoodBytes
	statTxBadFCS
	statTxPause
	statRxPackets
	statRxGoodPackets
	statRxBytes
	statRxGoodBytes
	statRxOversize
	statRxBadFCS
	statRxPause
	statFECCorrected
	statFECUncorrected
	statCount
)

// cmac is the Ethernet MAC behind the registers of PG203.
type cmac struct {
	block
	link     Link
	deadline time.Duration // when it wants to be polled

	fec      [2]bool // RS-FEC in use: receive, transmit
	usable   bool    // the signal is one that can be aligned to
	since    time.Duration
	aligned  bool
	up       bool // frames may be sent
	rxOpen   bool // frames are received
	corrupts bool // and have errors

	status [6]latched
	stats  [statCount]statistic
	ticked time.Duration
}

// The latched registers, in the order of cmac.status.
const (
	latchTx = iota
	latchRx
	latchBlockLock
	latchLaneSync
	latchSyncErr
	latchFEC
)

func newCMAC(b block, l Link) cmac {
	t := table("CMAC")
	m := cmac{block: b, link: l, deadline: Never}
	for i, r := range [...]regs.Reg{
		latchTx:        regs.CMACStatTx,
		latchRx:        regs.CMACStatRx,
		latchBlockLock: regs.CMACStatBlockLock,
		latchLaneSync:  regs.CMACStatLaneSync,
		latchSyncErr:   regs.CMACStatSyncErr,
		latchFEC:       regs.CMACStatRSFEC,
	} {
		m.status[i] = newLatched(t, r)
	}
	for i, r := range [...]regs.Reg64{
		statTxPackets:      regs.CMACTxPackets,
		statTxGoodPackets:  regs.CMACTxGoodPackets,
		statTxBytes:        regs.CMACTxBytes,
		statTxGoodBytes:    regs.CMACTxGoodBytes,
		statTxBadFCS:       regs.CMACTxBadFCS,
		statTxPause:        regs.CMACTxPause,
		statRxPackets:      regs.CMACRxPackets,
		statRxGoodPackets:  regs.CMACRxGoodPackets,
		statRxBytes:        regs.CMACRxBytes,
		statRxGoodBytes:    regs.CMACRxGoodBytes,
		statRxOversize:     regs.CMACRxOversize,
		statRxBadFCS:       regs.CMACRxBadFCS,
		statRxPause:        regs.CMACRxPause,
		statFECCorrected:   regs.CMACRSFECCorrected,
		statFECUncorrected: regs.CMACRSFECUncorrected,
	} {
		m.stats[i].reg = r
	}
	return m
}

// poll acts on what software wrote and on time.
func (m *cmac) poll(now time.Duration) {
	reset := m.get(regs.CMACReset)
	tx, rx := m.get(regs.CMACConfigTx), m.get(regs.CMACConfigRx)
	gt := m.get(regs.CMACGTReset) != 0
	gt = gt || m.link.NoClock
	resetRx := gt || regs.CMACResetRx.Get(reset) != 0 || regs.CMACResetRxSerdes.Get(reset) != 0
	resetTx := gt || regs.CMACResetTx.Get(reset) != 0
	if resetRx || resetTx {
		word := m.get(regs.CMACRSFECEnable)
		if resetRx {
			m.fec[0] = regs.CMACRSFECEnableRx.Get(word) != 0
		}
		if resetTx {
			m.fec[1] = regs.CMACRSFECEnableTx.Get(word) != 0
		}
	}

	loop := m.get(regs.CMACGTLoopback) != 0
	l := &m.link
	enabled := regs.CMACConfigTxEnable.Get(tx) != 0
	quiet := regs.CMACConfigTxSendRFI.Get(tx)|regs.CMACConfigTxSendLFI.Get(tx)|
		regs.CMACConfigTxSendIdle.Get(tx)|regs.CMACConfigTxTestPattern.Get(tx) != 0
	sends := !resetTx && (enabled || quiet)
	agree := func(fec bool) bool { return l.FEC == FECFollows || l.FEC != FECDiffers && fec == (l.FEC == FECOn) }
	var signal, match, fault bool
	if loop {
		signal, match = sends, m.fec[0] == m.fec[1]
		fault = regs.CMACConfigTxSendRFI.Get(tx) != 0
	} else {
		signal = !l.Dark && (sends || !l.Waits)
		match = agree(m.fec[0])
		fault = l.RemoteFault || !sends || !agree(m.fec[1])
	}

	receives := !resetRx && regs.CMACConfigRxEnable.Get(rx) != 0
	dark := uint32(l.DarkLanes) & alignmentMarkerLanes
	if loop {
		dark = 0
	}
	usable := receives && signal && match && dark == 0 && regs.CMACConfigRxForceResync.Get(rx) == 0
	if usable && !m.usable {
		m.since = now
	}
	m.usable = usable
	was := m.aligned
	m.aligned = usable && now-m.since >= l.AlignTime
	m.deadline = Never
	if usable && !m.aligned {
		m.deadline = m.since + l.AlignTime
	}
	highBER := m.aligned && l.HighBER && !loop
	fault = fault && m.aligned
	remoteLocal := m.aligned && l.LocalFault && !loop

	m.up = m.aligned && enabled && !quiet && !resetTx && !fault && !remoteLocal
	m.rxOpen = m.aligned && regs.CMACConfigRxTestPattern.Get(rx) == 0
	m.corrupts = highBER

	var status, events, lanes, errors, fec uint32
	if m.aligned {
		status |= regs.CMACStatRxStatus.Of(1) | regs.CMACStatRxAligned.Of(1)
	} else {
		status |= regs.CMACStatRxLocalFault.Of(1) | regs.CMACStatRxInternalLocalFault.Of(1)
		if was {
			events |= regs.CMACStatRxMisaligned.Of(1)
		}
	}
	if receives && signal && !match {
		status |= regs.CMACStatRxAlignedErr.Of(1)
	}
	if highBER {
		status |= regs.CMACStatRxHiBER.Of(1)
	}
	if fault {
		status |= regs.CMACStatRxRemoteFault.Of(1) | regs.CMACStatRxGotSignalOS.Of(1)
	}
	if remoteLocal {
		status |= regs.CMACStatRxReceivedLocalFault.Of(1) | regs.CMACStatRxLocalFault.Of(1) | regs.CMACStatRxGotSignalOS.Of(1)
	}
	if usable {
		lanes = allLanes
	} else if receives {
		if signal && match && regs.CMACConfigRxForceResync.Get(rx) == 0 {
			for n := range opticalLanes {
				if dark>>n&1 == 0 {
					lanes |= pcsLanes << (n * perOptical)
				}
			}
		}
		errors = allLanes &^ lanes
		if m.fec[0] && lanes != 0 {
			fec |= regs.CMACStatRSFECAMLock.Of(alignmentMarkerLanes &^ dark)
		}
	}
	if m.fec[0] && usable {
		fec |= regs.CMACStatRSFECAMLock.Of(alignmentMarkerLanes)
		if m.aligned {
			fec |= regs.CMACStatRSFECLaneAlignment.Of(1)
		}
		if highBER {
			fec |= regs.CMACStatRSFECHiSER.Of(1) | regs.CMACStatRSFECHiSERLatched.Of(1)
		}
	}
	var faultTx uint32
	if resetTx {
		faultTx = regs.CMACStatTxLocalFault.Of(1)
	}
	m.show(latchTx, faultTx, 0)
	m.show(latchRx, status, events)
	m.show(latchBlockLock, lanes, 0)
	m.show(latchLaneSync, lanes, 0)
	m.show(latchSyncErr, errors, 0)
	m.show(latchFEC, fec, 0)
	if gt && !m.link.NoClock {
		m.set(regs.CMACGTReset, 0)
		m.poll(now)
	}
	if m.get(regs.CMACTick) != 0 {
		m.tick(now)
		m.set(regs.CMACTick, 0)
	}
}

// show gives a status register its value.
func (m *cmac) show(i int, v, events uint32) {
	l := &m.status[i]
	if v != l.live {
		m.set(l.reg, v)
	}
	l.set(v, events)
}

// readClear returns what a clear-on-read register has latched.
func (m *cmac) readClear(r regs.Reg) (v uint32, ok bool) {
	for i := range m.status {
		if m.status[i].reg == r {
			return m.status[i].read(), true
		}
	}
	return 0, false
}

// tick takes the snapshot of all counters, which begin again at 0.
func (m *cmac) tick(now time.Duration) {
	if m.fec[0] && m.aligned {
		m.stats[statFECCorrected].count += ratio(now-m.ticked, m.link.CorrectedPerSecond)
	}
	m.set64(regs.CMACCycleCount, ratio(now-m.ticked, cmacClockHz)&counterMask)
	m.ticked = now
	for i := range m.stats {
		s := &m.stats[i]
		m.set64(s.reg, s.count&counterMask)
		s.count = 0
	}
}

// ratio is how many events of a frequency a duration holds.
func ratio(d time.Duration, hz uint64) uint64 {
	s := uint64(d / time.Second)
	return s*hz + uint64(d%time.Second)*hz/uint64(time.Second)
}

// txUp reports whether the MAC takes frames.
func (m *cmac) txUp() bool { return m.up }

// sent counts a frame of n bytes.
func (m *cmac) sent(n int) {
	bytes := uint64(max(n, minFrameBytes) + fcsBytes)
	m.stats[statTxPackets].count++
	m.stats[statTxGoodPackets].count++
	m.stats[statTxBytes].count += bytes
	m.stats[statTxGoodBytes].count += bytes
}

// received counts a frame of n bytes that arrives and reports whether it gets
// through.
func (m *cmac) received(n int) bool {
	if !m.rxOpen {
		return false
	}
	bytes := uint64(max(n, minFrameBytes) + fcsBytes)
	m.stats[statRxPackets].count++
	m.stats[statRxBytes].count += bytes
	if m.corrupts {
		m.stats[statRxBadFCS].count++
		if m.fec[0] {
			m.stats[statFECUncorrected].count++
		}
		return false
	}
	m.stats[statRxGoodPackets].count++
	m.stats[statRxGoodBytes].count += bytes
	return true
}
