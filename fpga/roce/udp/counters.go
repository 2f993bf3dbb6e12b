package udp

import "sync/atomic"

// Counters are totals since Listen.
type Counters struct {
	ReceivedPackets uint64 // packets handed out, after splitting
	ReceivedBytes   uint64 // their bytes
	ReceiveCalls    uint64 // recvmmsg calls
	ReceiveBatches  uint64 // of them, those that brought something
	Coalesced       uint64 // buffers that held more than one packet
	Truncated       uint64 // datagrams dropped because they were too long for RoCE
	// KernelDropped counts what the kernel threw away because the receive
	// buffer was full, or a checksum was wrong. The system keeps 32 bits of
	// it: Counters must be called at least once per 2^32 drops.
	KernelDropped uint64

	SentPackets  uint64 // packets the kernel took
	SentBytes    uint64
	SendCalls    uint64 // sendmmsg calls
	SendBatches  uint64 // of them, those that took something
	Segmented    uint64 // buffers that held more than one packet
	SendFull     uint64 // calls that found the socket buffer full
	SendErrors   uint64 // packets dropped because of an error
	GSOFallbacks uint64 // runs that had to be sent packet by packet
}

// counters has one writer for each direction and any number of readers.
type counters struct {
	rxPackets, rxBytes, rxCalls, rxBatches, coalesced, truncated atomic.Uint64
	_                                                            [64]byte // apart from the sender's cache line
	txPackets, txBytes, txCalls, txBatches, segmented            atomic.Uint64
	txFull, txErrors, gsoFallbacks                               atomic.Uint64
}

func (c *counters) read() Counters {
	return Counters{
		ReceivedPackets: c.rxPackets.Load(),
		ReceivedBytes:   c.rxBytes.Load(),
		ReceiveCalls:    c.rxCalls.Load(),
		ReceiveBatches:  c.rxBatches.Load(),
		Coalesced:       c.coalesced.Load(),
		Truncated:       c.truncated.Load(),
		SentPackets:     c.txPackets.Load(),
		SentBytes:       c.txBytes.Load(),
		SendCalls:       c.txCalls.Load(),
		SendBatches:     c.txBatches.Load(),
		Segmented:       c.segmented.Load(),
		SendFull:        c.txFull.Load(),
		SendErrors:      c.txErrors.Load(),
		GSOFallbacks:    c.gsoFallbacks.Load(),
	}
}
