package rocecore

import (
	"fmt"
	"net/netip"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// QP is how a queue pair is programmed.
type QP struct {
	MTU          roce.MTU
	Timeout      uint8 // IBTA code, 0..31
	RetryCount   uint8 // 0..7
	RNRRetry     uint8 // 0..7; 7 is for ever
	LocalQPN     roce.QPN
	RemoteQPN    roce.QPN
	StartPSN     roce.PSN
	Window       uint32 // packets, 1..Info.MaxWindow
	SourcePort   uint16
	TrafficClass uint8
	HopLimit     uint8
	PKey         uint16
	RemoteMAC    roce.MAC
	RemoteIP     netip.Addr
}

// CheckQP finds what the fabric would refuse. The error is a *SettingError or
// matches ErrUnsupported.
func (c *Core) CheckQP(q QP) error {
	switch {
	case !q.MTU.Valid() || q.MTU > c.info.MaxMTU:
		return setting("path MTU", int(q.MTU), "256, 512, 1024, 2048 or 4096, at most %d", c.info.MaxMTU)
	case q.Timeout > 31:
		return setting("timeout", q.Timeout, "0 to 31")
	case q.RetryCount > 7:
		return setting("retry count", q.RetryCount, "0 to 7")
	case q.RNRRetry > 7:
		return setting("RNR retry", q.RNRRetry, "0 to 7")
	case q.LocalQPN < 2 || q.LocalQPN > roce.QPNMask:
		return setting("local QPN", fmt.Sprintf("%#x", uint32(q.LocalQPN)), "2 to %#x", roce.QPNMask)
	case q.RemoteQPN < 2 || q.RemoteQPN > roce.QPNMask:
		return setting("remote QPN", fmt.Sprintf("%#x", uint32(q.RemoteQPN)), "2 to %#x", roce.QPNMask)
	case q.StartPSN > roce.PSNMask:
		return setting("start PSN", fmt.Sprintf("%#x", uint32(q.StartPSN)), "0 to %#x", roce.PSNMask)
	case q.Window < 1 || q.Window > c.info.MaxWindow:
		return setting("window", q.Window, "1 to %d packets", c.info.MaxWindow)
	case q.SourcePort == 0:
		return setting("source port", q.SourcePort, "1 to 65535")
	case q.HopLimit == 0:
		return setting("hop limit", q.HopLimit, "1 to 255")
	case !q.RemoteMAC.IsUnicast():
		return setting("remote MAC", q.RemoteMAC, "a unicast address, not zero")
	}
	return c.checkAddr("remote address", q.RemoteIP)
}

// ConfigureQP programs queue pair i, which must be in state Reset, and makes it
// ready to send.
func (c *Core) ConfigureQP(i int, q QP) error {
	if err := c.checkIndex(i); err != nil {
		return err
	}
	if err := c.CheckQP(q); err != nil {
		return err
	}
	shape := regs.CoreQpConfigMTU.Of(uint32(q.MTU.Code()))
	shape = regs.CoreQpConfigTimeout.Put(shape, uint32(q.Timeout))
	shape = regs.CoreQpConfigRetryCount.Put(shape, uint32(q.RetryCount))
	shape = regs.CoreQpConfigRNRRetry.Put(shape, uint32(q.RNRRetry))
	traffic := regs.CoreQpTrafficClass.Of(uint32(q.TrafficClass))
	traffic = regs.CoreQpTrafficHopLimit.Put(traffic, uint32(q.HopLimit))
	fill := []value{
		{regs.CoreQpConfig, shape},
		{regs.CoreQpLocalQPN, uint32(q.LocalQPN)},
		{regs.CoreQpRemoteQPN, uint32(q.RemoteQPN)},
		{regs.CoreQpStartPSN, uint32(q.StartPSN)},
		{regs.CoreQpWindow, q.Window},
		{regs.CoreQpSourcePort, uint32(q.SourcePort)},
		{regs.CoreQpTraffic, traffic},
		{regs.CoreQpPKey, uint32(q.PKey)},
	}
	fill = append(fill, macWords(regs.CoreQpRemoteMACLow, regs.CoreQpRemoteMACHigh, q.RemoteMAC)...)
	fill = append(fill, addrWords(regs.CoreQpRemoteIP0, q.RemoteIP)...)
	return c.command(c.core, "Core", regs.CoreCommandOpCommit, i, fill...)
}

// ResetQP drops everything of queue pair i.
func (c *Core) ResetQP(i int) error {
	if err := c.checkIndex(i); err != nil {
		return err
	}
	return c.command(c.core, "Core", regs.CoreCommandOpReset, i)
}

func (c *Core) checkIndex(i int) error {
	if i < 0 || i >= c.info.QueuePairs {
		return setting("queue pair", i, "0 to %d", c.info.QueuePairs-1)
	}
	return nil
}

// QPStatus is the state and the counters of a queue pair at one instant, by
// register name.
type QPStatus struct {
	State string // Reset, Ready or Error
	// Failed is set in state Error; Cause says why.
	Failed  bool
	Cause   string
	NextPSN roce.PSN
	Unacked roce.PSN
	MSN     uint32

	MessagesPosted, MessagesAcked            uint64
	BytesPosted, BytesAcked                  uint64
	PacketsSent, PacketsResent, PacketsAcked uint64
	Timeouts, SequenceNAKs, RNRNAKs          uint64
	RNRMessages, FatalNAKs                   uint64
	AcksReceived, StaleAcks                  uint64
	ReadResponses, ReadGaps, WindowStalls    uint64
}

// LatchQP takes state and counters of queue pair i and of the port at one
// instant.
func (c *Core) LatchQP(i int) (QPStatus, Port, error) {
	if err := c.checkIndex(i); err != nil {
		return QPStatus{}, Port{}, err
	}
	if err := c.command(c.core, "Core", regs.CoreCommandOpLatch, i); err != nil {
		return QPStatus{}, Port{}, err
	}
	var s QPStatus
	var p Port
	var state, next, unacked, index uint32
	for _, r := range []struct {
		reg regs.Reg
		to  *uint32
	}{
		{regs.CoreStatState, &state}, {regs.CoreStatNextPSN, &next}, {regs.CoreStatUnackedPSN, &unacked},
		{regs.CoreStatMSN, &s.MSN}, {regs.CoreStatIndex, &index},
	} {
		v, err := r.reg.Read(c.core)
		if err != nil {
			return QPStatus{}, Port{}, fmt.Errorf("read %s: %w", registerName("Core", uint32(r.reg)), err)
		}
		*r.to = v
	}
	if index != uint32(i) {
		return QPStatus{}, Port{}, fmt.Errorf("latched queue pair %d, Core.StatIndex reads %d: does another program use this fabric? %w", i, index, ErrNoFabric)
	}
	code := regs.CoreStatStateState.Get(state)
	s.State = valueName("Core", "StatState", "State", code)
	s.Failed = code == regs.CoreStatStateStateError
	if s.Failed {
		s.Cause = valueName("Core", "StatState", "Cause", regs.CoreStatStateCause.Get(state))
	}
	s.NextPSN, s.Unacked = roce.PSN(next), roce.PSN(unacked)
	err := load(c.core, "Core", append([]counter{
		{regs.CoreStatMessagesPosted, &s.MessagesPosted}, {regs.CoreStatMessagesAcked, &s.MessagesAcked},
		{regs.CoreStatBytesPosted, &s.BytesPosted}, {regs.CoreStatBytesAcked, &s.BytesAcked},
		{regs.CoreStatPacketsSent, &s.PacketsSent}, {regs.CoreStatPacketsResent, &s.PacketsResent},
		{regs.CoreStatPacketsAcked, &s.PacketsAcked}, {regs.CoreStatTimeouts, &s.Timeouts},
		{regs.CoreStatSequenceNAKs, &s.SequenceNAKs}, {regs.CoreStatRNRNAKs, &s.RNRNAKs},
		{regs.CoreStatRNRMessages, &s.RNRMessages}, {regs.CoreStatFatalNAKs, &s.FatalNAKs},
		{regs.CoreStatAcksReceived, &s.AcksReceived}, {regs.CoreStatStaleAcks, &s.StaleAcks},
		{regs.CoreStatReadResponses, &s.ReadResponses}, {regs.CoreStatReadGaps, &s.ReadGaps},
		{regs.CoreStatWindowStalls, &s.WindowStalls},
	}, p.counters()...))
	if err != nil {
		return QPStatus{}, Port{}, err
	}
	return s, p, nil
}
