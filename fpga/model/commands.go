package model

import (
	"net/netip"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// resetRegisters fills in everything that reads without a command.
func (f *Fabric) resetRegisters() {
	f.shell.reset()
	core, stream := table("Core"), table("Stream")
	f.core.reset(core)
	f.core.set(regs.CoreNext, StreamBase)
	f.core.set(regs.CoreBuild, f.cfg.Build)
	caps := regs.CoreCapsQueuePairs.Of(uint32(f.cfg.QueuePairs))
	caps = regs.CoreCapsMaxMTU.Put(caps, uint32(f.cfg.MaxMTU.Code()))
	caps |= regs.CoreCapsIPv6.Of(1) | regs.CoreCapsRead.Of(1) | regs.CoreCapsEmulated.Of(1)
	for _, s := range f.cfg.Sources {
		if s != nil {
			caps |= regs.CoreCapsExternal.Of(1)
		}
	}
	f.core.set(regs.CoreCaps, caps)
	f.core.set(regs.CoreMaxWindow, uint32(f.cfg.MaxWindow))
	f.core.set(regs.CoreMaxReads, uint32(f.cfg.MaxReads))
	f.core.set(regs.CoreBoot, f.cfg.Boot)
	f.core.set(regs.CoreClockKHz, ClockKHz)

	f.stream.reset(stream)
	f.stream.set(regs.StreamStreams, uint32(f.cfg.QueuePairs))
	f.stream.set(regs.StreamMaxFrameBytes, f.cfg.MaxFrameBytes)

	f.poll()
	f.present()
}

// poll acts on what software wrote.
func (f *Fabric) poll() {
	f.shell.poll()
	f.enabled = regs.CoreControlEnable.Get(f.core.get(regs.CoreControl)) != 0
	if word := f.core.get(regs.CoreCommand); word != 0 {
		r := f.coreCommand(word)
		f.commanded = f.now
		f.coreCommands++
		f.core.set(regs.CoreCommandStatus, r.code)
		f.core.set(regs.CoreCommandDetail, r.detail)
		f.core.set(regs.CoreCommandCount, f.coreCommands)
		f.core.set(regs.CoreCommand, 0)
	}
	if word := f.stream.get(regs.StreamCommand); word != 0 {
		r := f.streamCommand(word)
		f.commanded = f.now
		f.streamCommands++
		f.stream.set(regs.StreamCommandStatus, r.code)
		f.stream.set(regs.StreamCommandDetail, r.detail)
		f.stream.set(regs.StreamCommandCount, f.streamCommands)
		f.stream.set(regs.StreamCommand, 0)
	}
}

// result is how a command ended.
type result struct{ code, detail uint32 }

var (
	done     = result{regs.CoreCommandStatusCodeOK, 0}
	badOp    = result{regs.CoreCommandStatusCodeBadOp, 0}
	badIndex = result{regs.CoreCommandStatusCodeBadIndex, 0}
)

func badState(state uint32) result { return result{regs.CoreCommandStatusCodeBadState, state} }
func badValue(offset regs.Reg) result {
	return result{regs.CoreCommandStatusCodeBadValue, uint32(offset)}
}

func (f *Fabric) coreCommand(word uint32) result {
	op := regs.CoreCommandOp.Get(word)
	switch {
	case op < regs.CoreCommandOpCommit || op > regs.CoreCommandOpResetAll:
		return badOp
	case op == regs.CoreCommandOpResetAll:
		for i := range f.qps {
			f.qps[i].reset()
		}
		f.count = portCounters{}
		return done
	}
	index := int(regs.CoreCommandIndex.Get(word))
	if index >= len(f.qps) {
		return badIndex
	}
	q := &f.qps[index]
	switch op {
	case regs.CoreCommandOpCommit:
		if q.state != qpReset {
			return badState(uint32(q.state))
		}
		if r, ok := q.configure(f.core); !ok {
			return badValue(r)
		}
	case regs.CoreCommandOpReset:
		q.reset()
	case regs.CoreCommandOpLatch:
		f.latchCore(index)
	}
	return done
}

func (f *Fabric) streamCommand(word uint32) result {
	op := regs.StreamCommandOp.Get(word)
	if op < regs.StreamCommandOpCommit || op > regs.StreamCommandOpLatch {
		return badOp
	}
	index := int(regs.StreamCommandIndex.Get(word))
	if index >= len(f.streams) {
		return badIndex
	}
	s := &f.streams[index]
	switch op {
	case regs.StreamCommandOpCommit:
		if s.state != streamIdle {
			return badState(uint32(s.state))
		}
		if r, ok := s.configure(f.stream); !ok {
			return badValue(r)
		}
	case regs.StreamCommandOpStart:
		if s.state != streamConfigured || s.qp.state != qpReady {
			return badState(uint32(s.state))
		}
		s.start()
	case regs.StreamCommandOpStop:
		switch s.state {
		case streamRunning, streamStopping, streamStopped:
			s.stop()
		default:
			return badState(uint32(s.state))
		}
	case regs.StreamCommandOpReset:
		s.reset()
	case regs.StreamCommandOpLatch:
		f.latchStream(index)
	}
	return done
}

// configure takes the registers over and makes the queue pair ready. On an
// error it returns the register that is refused.
func (q *queuePair) configure(b block) (refused regs.Reg, ok bool) {
	f := q.fabric
	config := b.get(regs.CoreQpConfig)
	mtu, err := roce.MTUFromCode(uint8(regs.CoreQpConfigMTU.Get(config)))
	if err != nil || mtu > f.cfg.MaxMTU {
		return regs.CoreQpConfig, false
	}
	for _, r := range [...]regs.Reg{regs.CoreQpLocalQPN, regs.CoreQpRemoteQPN} {
		if n := b.get(r); n < 2 || n > roce.QPNMask {
			return r, false
		}
	}
	localQPN := roce.QPN(b.get(regs.CoreQpLocalQPN))
	for i := range f.qps {
		// Two with one number could not be told apart.
		if o := &f.qps[i]; o.state != qpReset && o.localQPN == localQPN {
			return regs.CoreQpLocalQPN, false
		}
	}
	start := b.get(regs.CoreQpStartPSN)
	window := b.get(regs.CoreQpWindow)
	port := b.get(regs.CoreQpSourcePort)
	traffic := b.get(regs.CoreQpTraffic)
	pkey := b.get(regs.CoreQpPKey)
	hops := regs.CoreQpTrafficHopLimit.Get(traffic)
	dst := f.macAddress(regs.CoreQpRemoteMACLow, regs.CoreQpRemoteMACHigh)
	remote, local := f.address(regs.CoreQpRemoteIP0), f.localIP()
	switch {
	case start > roce.PSNMask:
		return regs.CoreQpStartPSN, false
	case window == 0 || window > uint32(f.cfg.MaxWindow):
		return regs.CoreQpWindow, false
	case port == 0 || port > 0xFFFF:
		return regs.CoreQpSourcePort, false
	case hops == 0:
		return regs.CoreQpTraffic, false
	case pkey > 0xFFFF:
		return regs.CoreQpPKey, false
	case b.get(regs.CoreQpRemoteMACHigh) > 0xFFFF:
		return regs.CoreQpRemoteMACHigh, false
	case !dst.IsUnicast():
		return regs.CoreQpRemoteMACLow, false
	case !unicast(local):
		return regs.CoreLocalIP0, false
	case !unicast(remote) || remote.Is4() != local.Is4():
		return regs.CoreQpRemoteIP0, false
	}
	if f.cfg.SourcePort != 0 {
		port = uint32(f.cfg.SourcePort)
	}
	q.state = qpReady
	q.mtu = uint32(mtu)
	q.timeout = roce.AckTimeout(uint8(regs.CoreQpConfigTimeout.Get(config)))
	q.retryCount = int(regs.CoreQpConfigRetryCount.Get(config))
	q.rnrRetry = int(regs.CoreQpConfigRNRRetry.Get(config))
	q.window = uint64(window)
	q.localQPN = localQPN
	q.startPSN = roce.PSN(start)
	q.local, q.remote = local, remote
	q.frame = roce.Frame{
		Dst:          dst,
		Src:          f.macAddress(regs.CoreLocalMACLow, regs.CoreLocalMACHigh),
		Flow:         roce.Flow{Src: local, Dst: remote, SrcPort: uint16(port)},
		TrafficClass: uint8(regs.CoreQpTrafficClass.Get(traffic)),
		TTL:          uint8(hops),
	}
	q.frame.Packet.BTH = roce.BTH{
		MigReq: true,
		PKey:   uint16(pkey),
		DestQP: roce.QPN(b.get(regs.CoreQpRemoteQPN)),
	}
	return 0, true
}

func unicast(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsMulticast() }

// latchCore copies status and counters of a queue pair and of the port.
func (f *Fabric) latchCore(index int) {
	q, b := &f.qps[index], f.core
	b.set(regs.CoreStatState, regs.CoreStatStateCause.Put(regs.CoreStatStateState.Of(uint32(q.state)), uint32(q.cause)))
	b.set(regs.CoreStatNextPSN, uint32(q.psn(q.nextNumber)))
	b.set(regs.CoreStatUnackedPSN, uint32(q.psn(q.unacked())))
	b.set(regs.CoreStatMSN, q.msn)
	b.set(regs.CoreStatIndex, uint32(index))
	b.set64(regs.CoreUptime, f.cycles())
	c := &q.count
	b.set64(regs.CoreStatMessagesPosted, c.messagesPosted)
	b.set64(regs.CoreStatMessagesAcked, c.messagesAcked)
	b.set64(regs.CoreStatBytesPosted, c.bytesPosted)
	b.set64(regs.CoreStatBytesAcked, c.bytesAcked)
	b.set64(regs.CoreStatPacketsSent, c.packetsSent)
	b.set64(regs.CoreStatPacketsResent, c.packetsResent)
	b.set64(regs.CoreStatPacketsAcked, c.packetsAcked)
	b.set64(regs.CoreStatTimeouts, c.timeouts)
	b.set64(regs.CoreStatSequenceNAKs, c.sequenceNAKs)
	b.set64(regs.CoreStatRNRNAKs, c.rnrNAKs)
	b.set64(regs.CoreStatRNRMessages, c.rnrMessages)
	b.set64(regs.CoreStatFatalNAKs, c.fatalNAKs)
	b.set64(regs.CoreStatAcksReceived, c.acksReceived)
	b.set64(regs.CoreStatStaleAcks, c.staleAcks)
	b.set64(regs.CoreStatReadResponses, c.readResponses)
	b.set64(regs.CoreStatReadGaps, c.readGaps)
	b.set64(regs.CoreStatWindowStalls, c.windowStalls)
	p := &f.count
	b.set64(regs.CoreTxPackets, p.txPackets)
	b.set64(regs.CoreTxBytes, p.txBytes)
	b.set64(regs.CoreTxDropped, p.txDropped)
	b.set64(regs.CoreRxPackets, p.rxPackets)
	b.set64(regs.CoreRxBytes, p.rxBytes)
	b.set64(regs.CoreRxBadICRC, p.rxBadICRC)
	b.set64(regs.CoreRxMalformed, p.rxMalformed)
	b.set64(regs.CoreRxUnknownQP, p.rxUnknownQP)
	b.set64(regs.CoreRxBadOpcode, p.rxBadOpcode)
	b.set64(regs.CoreRxWrongAddress, p.rxWrongAddress)
}

// latchStream copies status and counters of a stream.
func (f *Fabric) latchStream(index int) {
	s, b := &f.streams[index], f.stream
	s.settle()
	state := regs.StreamStatStateState.Of(uint32(s.state))
	if s.ended {
		state |= regs.StreamStatStateEnded.Of(1)
	}
	b.set(regs.StreamStatState, state)
	b.set(regs.StreamStatIndex, uint32(index))
	c := &s.count
	b.set64(regs.StreamStatSourceFrames, c.sourceFrames)
	b.set64(regs.StreamStatSourceBytes, c.sourceBytes)
	b.set64(regs.StreamStatFramesPosted, c.framesPosted)
	b.set64(regs.StreamStatFramesDone, c.framesDone)
	b.set64(regs.StreamStatBytesDone, c.bytesDone)
	var dropped uint64
	if s.cfg.external {
		dropped = s.source.Dropped() - s.dropped
	}
	b.set64(regs.StreamStatSourceDropped, dropped)
	b.set64(regs.StreamStatReadGood, c.readGood)
	b.set64(regs.StreamStatReadBad, c.readBad)
	b.set64(regs.StreamStatCreditStalls, c.creditStalls)
	b.set64(regs.StreamStatCreditReads, c.creditReads)
	b.set64(regs.StreamStatReleased, c.released)
}
