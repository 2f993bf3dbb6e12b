package rocecore

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// SetUp brings the fabric from any state to one without queue pairs, with the
// given addresses, sending and receiving. Someone else's streams end.
func (c *Core) SetUp(mac roce.MAC, addr netip.Addr) error {
	if err := c.checkAddresses(mac, addr); err != nil {
		return err
	}
	if err := c.Enable(false); err != nil {
		return err
	}
	for i := range c.info.QueuePairs {
		if err := c.ResetStream(i); err != nil {
			return err
		}
	}
	if err := c.ResetAll(); err != nil {
		return err
	}
	if err := c.SetAddresses(mac, addr); err != nil {
		return err
	}
	return c.Enable(true)
}

// SetAddresses sets the addresses the fabric sends from. Queue pairs that are
// already programmed keep the ones before.
func (c *Core) SetAddresses(mac roce.MAC, addr netip.Addr) error {
	if err := c.checkAddresses(mac, addr); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	return storeAll(c.core, "Core", append(macWords(regs.CoreLocalMACLow, regs.CoreLocalMACHigh, mac),
		addrWords(regs.CoreLocalIP0, addr)...))
}

func (c *Core) checkAddresses(mac roce.MAC, addr netip.Addr) error {
	if !mac.IsUnicast() {
		return setting("local MAC", mac, "a unicast address, not zero")
	}
	return c.checkAddr("local address", addr)
}

// checkAddr refuses what cannot be the address of a host.
func (c *Core) checkAddr(name string, a netip.Addr) error {
	switch a = a.Unmap(); {
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return setting(name, a, "the address of one host, without a zone")
	case a.Is6() && !c.info.IPv6:
		return fmt.Errorf("%s %v: IPv6: %w", name, a, ErrUnsupported)
	}
	return nil
}

// Enable switches sending and receiving. The error matches ErrNoFabric when the
// switch does not hold.
func (c *Core) Enable(on bool) error {
	if !on {
		c.enabled = false
	}
	if err := c.Check(); err != nil {
		return err
	}
	var v uint32
	if on {
		v = regs.CoreControlEnable.Mask()
	}
	if err := store(c.core, "Core", regs.CoreControl, v); err != nil {
		return err
	}
	c.enabled = on
	return nil
}

// ResetAll resets every queue pair and clears the port's counters.
func (c *Core) ResetAll() error { return c.command(c.core, "Core", regs.CoreCommandOpResetAll, 0) }

func macWords(low, high regs.Reg, m roce.MAC) []value {
	return []value{{low, binary.BigEndian.Uint32(m[2:])}, {high, uint32(binary.BigEndian.Uint16(m[:]))}}
}

func addrWords(first regs.Reg, a netip.Addr) []value {
	b := a.As16()
	v := make([]value, 4)
	for i := range v {
		v[i] = value{first + regs.Reg(4*i), binary.BigEndian.Uint32(b[4*i:])}
	}
	return v
}

// Port is the counters of all queue pairs together, by register name.
type Port struct {
	Uptime                                                  uint64 // core clock cycles
	TxPackets, TxBytes, TxDropped                           uint64
	RxPackets, RxBytes, RxBadICRC, RxMalformed, RxUnknownQP uint64
	RxBadOpcode, RxWrongAddress                             uint64
}

func (p *Port) counters() []counter {
	return []counter{
		{regs.CoreUptime, &p.Uptime},
		{regs.CoreTxPackets, &p.TxPackets}, {regs.CoreTxBytes, &p.TxBytes}, {regs.CoreTxDropped, &p.TxDropped},
		{regs.CoreRxPackets, &p.RxPackets}, {regs.CoreRxBytes, &p.RxBytes}, {regs.CoreRxBadICRC, &p.RxBadICRC},
		{regs.CoreRxMalformed, &p.RxMalformed}, {regs.CoreRxUnknownQP, &p.RxUnknownQP},
		{regs.CoreRxBadOpcode, &p.RxBadOpcode}, {regs.CoreRxWrongAddress, &p.RxWrongAddress},
	}
}

// Each calls f for each counter by register name in snake case.
func (p Port) Each(f func(name string, value uint64)) {
	for i, c := range p.counters() {
		f(portNames[i], *c.to)
	}
}

// portNames are the names of counters, in its order.
var portNames = [...]string{
	"uptime", "tx_packets", "tx_bytes", "tx_dropped", "rx_packets", "rx_bytes", "rx_bad_icrc",
	"rx_malformed", "rx_unknown_qp", "rx_bad_opcode", "rx_wrong_address",
}
