package model

import (
	"time"

	"rocelink/fpga/regs"
)

// What is on the modules' bus: a PCA9548, and a cage behind its channel 0.
const (
	switchAddress = 0x74
	moduleAddress = 0x50
	cageChannel   = 1 << 0
)

// modules is the block of the modules' bus and lines, and what is on them.
type modules struct {
	block
	deadline time.Duration // when it wants to be polled
	count    uint32
	channels byte // of the switch that are open
	qsfp     qsfp
	around   surroundings
}

func newModules(b block) modules { return modules{block: b, deadline: Never, qsfp: newQSFP()} }

// start fills in the registers but the identity.
func (m *modules) start() { m.reset(table("Modules")) }

// poll lets time pass and carries out a transfer; it reports whether there was
// one. The light that arrives is what the peer sends.
func (m *modules) poll(now time.Duration, light Link, p *provoked) (transferred bool) {
	out := m.get(regs.ModulesOut)
	m.around = surroundings{
		present: !p.unplugged && now >= p.exchanged,
		reset:   regs.ModulesOutResetL.Get(out) == 0,
		lpMode:  regs.ModulesOutLPMode.Get(out) != 0 || p.lowPower,
		dark:    light.DarkLanes & alignmentMarkerLanes,
		noLock:  p.wrongRate,
		txOff:   p.txOff,
		hot:     p.hot,
	}
	if light.Dark {
		m.around.dark = alignmentMarkerLanes
	}
	begun := m.get(regs.ModulesControl) != 0
	m.qsfp.stale = m.qsfp.stale || begun
	m.deadline = m.qsfp.poll(now, m.around)
	if now < p.exchanged {
		m.deadline = min(m.deadline, p.exchanged)
	}
	if begun {
		code, at := m.transfer(now, p)
		m.count++
		m.set(regs.ModulesStatus, regs.ModulesStatusCode.Of(code)|regs.ModulesStatusByte.Of(at))
		m.set(regs.ModulesCount, m.count)
		m.set(regs.ModulesControl, 0)
		// What was written acts at once, and flags that were cleared by reading
		// are there again if their cause is.
		m.qsfp.stale = true
		m.deadline = min(m.deadline, m.qsfp.poll(now, m.around))
		transferred = true
	}
	m.lines(out)
	return transferred
}

// lines shows the levels.
func (m *modules) lines(out uint32) {
	low := func(active bool) uint32 {
		if active {
			return 0
		}
		return 1
	}
	v := out & (regs.ModulesInResetL.Mask() | regs.ModulesInModSelL.Mask())
	if m.around.lpMode {
		v |= regs.ModulesInLPMode.Mask()
	}
	v = regs.ModulesInModPrsL.Put(v, low(m.around.present))
	v = regs.ModulesInIntL.Put(v, low(m.qsfp.present && !m.qsfp.held && m.qsfp.low[memStatus]&statusIntL == 0 && m.qsfp.interrupts()))
	if v != m.get(regs.ModulesIn) {
		m.set(regs.ModulesIn, v)
	}
}

// transfer carries out what the registers ask for and returns how it ended.
func (m *modules) transfer(now time.Duration, p *provoked) (code, at uint32) {
	address, w, r := m.get(regs.ModulesAddress), m.get(regs.ModulesWriteLength), m.get(regs.ModulesReadLength)
	switch {
	case address > 0x7F || w > regs.ModulesDataBytes || r > regs.ModulesDataBytes || w+r == 0:
		return regs.ModulesStatusCodeBadTransfer, 0
	case p.stuck:
		return regs.ModulesStatusCodeStuck, 0
	}
	data := make([]byte, regs.ModulesDataBytes)
	for i := range w {
		data[i] = byte(m.get(regs.ModulesData+regs.Reg(i&^3)) >> (i % 4 * 8))
	}
	took := uint32(0)
	switch {
	case address == switchAddress:
		if w > 0 {
			m.channels = data[w-1]
		}
		for i := range r {
			data[i] = m.channels
		}
		took = w
	case address == moduleAddress && m.listens(now) && !p.nack:
		took = uint32(m.qsfp.write(data[:w]))
		if took == w {
			m.qsfp.read(data[:r], m.around, p.checksum)
		}
	default:
		return regs.ModulesStatusCodeNoAcknowledge, 0
	}
	if took < w {
		return regs.ModulesStatusCodeNoAcknowledge, took + 1
	}
	for i := uint32(0); i < r; i += 4 {
		// Bytes behind the last one read are left as they were.
		v := m.get(regs.ModulesData + regs.Reg(i))
		for j := i; j < min(i+4, r); j++ {
			v = v&^(0xFF<<(j%4*8)) | uint32(data[j])<<(j%4*8)
		}
		m.set(regs.ModulesData+regs.Reg(i), v)
	}
	return regs.ModulesStatusCodeOK, 0
}

// listens reports whether the module hears the bus.
func (m *modules) listens(now time.Duration) bool {
	return m.channels&cageChannel != 0 && regs.ModulesOutModSelL.Get(m.get(regs.ModulesOut)) == 0 && m.qsfp.answers(now)
}

// link is the Ethernet link as the MAC finds it through the module.
func (m *modules) link(now time.Duration, l Link, p *provoked) Link {
	receives, sends := m.qsfp.receives(now, m.around), m.qsfp.sends(now, m.around)
	l.DarkLanes |= alignmentMarkerLanes &^ receives
	l.Dark = l.Dark || receives == 0 || p.wrongRate
	l.RemoteFault = l.RemoteFault || sends != alignmentMarkerLanes
	return l
}
