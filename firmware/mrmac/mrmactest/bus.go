// Package mrmactest plays an MRMAC and the peer at the other end of its fibre,
// for tests: registers with their side effects, and a receiver that does not lock
// to a signal that comes after its reset.
package mrmactest

import (
	"errors"
	"sync"
	"time"

	"rocelink/fpga/regs"
)

// ErrBus: nothing decodes the address.
var ErrBus = errors.New("bus error")

// Peer is the other end.
type Peer struct {
	Dark        bool
	FEC         bool
	RemoteFault bool // it does not see us
	HighBER     bool
	// Corrected and Uncorrected are codewords a second.
	Corrected, Uncorrected uint64
}

// MAC is the core. Its methods may be called by several goroutines.
type MAC struct {
	mu     sync.Mutex
	now    func() time.Time
	peer   Peer
	mem    map[uint32]uint32
	known  map[uint32]bool // words that decode
	writes []uint32        // offsets, in order
	fec    bool            // taken over at the last reset
	locked bool            // the receiver found a signal at its last reset
	sticky uint32
	ticked time.Time
	resets int

	// Dead makes every access fail, Ones makes every register read ones.
	Dead, Ones bool
}

const revision = 0x0000_0101

// New returns a core whose time is now.
func New(now func() time.Time) *MAC {
	m := &MAC{now: now, mem: map[uint32]uint32{}, known: map[uint32]bool{}, ticked: now(), peer: Peer{FEC: true}}
	for _, b := range regs.AXIBlocks() {
		if b.Name != "MRMAC" {
			continue
		}
		for _, r := range b.Regs {
			for w := range r.Words() {
				m.known[r.Offset+4*uint32(w)] = true
			}
			m.mem[r.Offset] = r.Reset
		}
	}
	m.mem[uint32(regs.MRMACRevision)] = revision
	m.mem[uint32(regs.MRMACStatReady)] = 3
	return m
}

// Set changes the peer.
func (m *MAC) Set(p Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peer = p
	m.look()
}

// Resets is how many times the port left reset.
func (m *MAC) Resets() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resets
}

// Writes are the offsets that were written, in order.
func (m *MAC) Writes() []uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]uint32(nil), m.writes...)
}

// look makes the status what signal and settings make it. The caller holds mu.
func (m *MAC) look() {
	get := func(r regs.Reg) uint32 { return m.mem[uint32(r)] }
	inReset := get(regs.MRMACReset) != 0
	receives := !inReset && regs.MRMACConfigRxEnable.Get(get(regs.MRMACConfigRx)) == 1
	sends := !inReset && regs.MRMACConfigTxEnable.Get(get(regs.MRMACConfigTx)) == 1
	if m.peer.Dark {
		m.locked = false
	}
	var live, lanes, fec uint32
	if receives && m.locked {
		lanes = 1<<20 - 1
		live |= regs.MRMACStatRxLiveBlockLock.Of(1)
		if m.fec == m.peer.FEC {
			live |= regs.MRMACStatRxLiveAligned.Of(1)
		}
	}
	switch {
	case regs.MRMACStatRxLiveAligned.Get(live) == 0:
		live |= regs.MRMACStatRxLiveLocalFault.Of(1)
	case m.peer.HighBER:
		live |= regs.MRMACStatRxLiveHiBER.Of(1)
		fec |= regs.MRMACStatRxFECLiveHiSER.Of(1)
	default:
		live |= regs.MRMACStatRxLiveStatus.Of(1)
	}
	if regs.MRMACStatRxLiveAligned.Get(live) == 1 && (m.peer.RemoteFault || !sends) {
		live |= regs.MRMACStatRxLiveRemoteFault.Of(1)
	}
	m.sticky |= live
	m.mem[uint32(regs.MRMACStatRxLive)] = live
	m.mem[uint32(regs.MRMACStatBlockLock)] = lanes
	m.mem[uint32(regs.MRMACStatRxFECLive)] = fec
}

// Read32 implements regs.Bus.
func (m *MAC) Read32(offset uint32) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.Dead || !m.known[offset]:
		return 0, ErrBus
	case m.Ones:
		return ^uint32(0), nil
	case regs.Reg(offset) == regs.MRMACTick:
		return 0, nil // write-only
	case regs.Reg(offset) == regs.MRMACStatRx:
		return m.sticky, nil
	}
	return m.mem[offset], nil
}

// Write32 implements regs.Bus.
func (m *MAC) Write32(offset uint32, v uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Dead || !m.known[offset] {
		return ErrBus
	}
	m.writes = append(m.writes, offset)
	switch regs.Reg(offset) {
	case regs.MRMACStatRx:
		m.sticky = m.sticky&^v | m.mem[uint32(regs.MRMACStatRxLive)]
	case regs.MRMACTick:
		m.tick()
	case regs.MRMACReset:
		if m.mem[offset] != 0 && v == 0 {
			m.resets++
			m.fec = regs.MRMACFECMode.Get(m.mem[uint32(regs.MRMACFEC)]) != 0
			m.locked = !m.peer.Dark
		}
		m.mem[offset] = v
	case regs.MRMACMode, regs.MRMACConfigTx, regs.MRMACConfigRx, regs.MRMACRxMTU, regs.MRMACFEC:
		m.mem[offset] = v
	}
	m.look()
	return nil
}

// tick takes the snapshot.
func (m *MAC) tick() {
	now := m.now()
	seconds := now.Sub(m.ticked).Seconds()
	m.ticked = now
	for r, perSecond := range map[regs.Reg64]uint64{
		regs.MRMACRSFECCorrected: m.peer.Corrected, regs.MRMACRSFECUncorrected: m.peer.Uncorrected,
		regs.MRMACRxPackets: 1000, regs.MRMACTxPackets: 2000,
	} {
		n := uint64(seconds * float64(perSecond))
		m.mem[uint32(r)], m.mem[uint32(r)+4] = uint32(n), uint32(n>>32)
	}
}
