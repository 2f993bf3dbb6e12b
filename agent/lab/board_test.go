//go:build lab

package lab

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"rocelink/agent/lab/session"
	"rocelink/fpga/model"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// machine is a fabric: registers on one side, Ethernet frames on the other.
type machine interface {
	Step(now time.Duration) time.Duration
	Receive(now time.Duration, frame []byte)
	Close() error
}

// board is a fabric on a segment, in real time, with one queue pair
// and one stream: what boardd would program is written to its registers here.
type board struct {
	t            *testing.T
	segment      *segment
	fabric       machine
	core, stream regs.Bus
	began        time.Time
	wake         chan struct{}
	// idle is the longest time between two looks: an external source does
	// not wake who has no driver.
	idle time.Duration
	crc  bool // the fabric can end frames with one

	mu      sync.Mutex // of the faults
	out, in *model.Faults
	scrap   []model.Datagram
}

const (
	boardQPN = roce.QPN(0x0b0a2d)
	boardPSN = roce.PSN(0xFFFFF0) // wraps soon
)

// newBoard starts a fabric whose frames a bad network treats as faults says, and
// brings its port up.
func newBoard(t *testing.T, s *segment, faults model.FaultConfig, source *model.Source) *board {
	t.Helper()
	b := newFabric(t, s, faults, model.Config{QueuePairs: 1, Sources: []*model.Source{source}})
	b.enable()
	return b
}

// enable brings the port up.
func (b *board) enable() {
	b.t.Helper()
	cmac := regs.At(b.core, model.CMACBase)
	b.write(cmac, regs.CMACConfigRx, regs.CMACConfigRxEnable.Of(1))
	b.write(cmac, regs.CMACConfigTx, regs.CMACConfigTxEnable.Of(1))
	b.mac(regs.CoreLocalMACHigh, regs.CoreLocalMACLow, b.segment.MAC)
	b.address(regs.CoreLocalIP0, b.segment.Address)
	b.write(b.core, regs.CoreControl, regs.CoreControlEnable.Of(1))
}

// newFabric starts a software fabric that nobody has programmed.
func newFabric(t *testing.T, s *segment, faults model.FaultConfig, c model.Config) *board {
	t.Helper()
	idle := time.Second
	// Neither an external source nor registers in shared memory wake anybody.
	if len(c.Sources) > 0 && c.Sources[0] != nil || c.Registers != nil {
		idle = time.Millisecond
	}
	return newMachine(t, s, faults, idle, func(b *board) (machine, regs.Bus, error) {
		b.crc = true
		c.Port = b
		c.CreditInterval = time.Millisecond // an emulated guest answers in milliseconds
		f, err := model.New(c)
		if err != nil {
			return nil, nil, err
		}
		return f, f.Bus(), nil
	})
}

// newMachine starts what build makes, with the board as its port.
func newMachine(t *testing.T, s *segment, faults model.FaultConfig, idle time.Duration, build func(*board) (machine, regs.Bus, error)) *board {
	t.Helper()
	b := &board{t: t, segment: s, began: time.Now(), wake: make(chan struct{}, 1), idle: idle,
		out: model.NewFaults(faults, 1), in: model.NewFaults(faults, 2)}
	f, bus, err := build(b)
	if err != nil {
		t.Fatal(err)
	}
	b.fabric = f
	b.core, b.stream = regs.At(bus, model.CoreBase), regs.At(bus, model.StreamBase)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		b.run(stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *board) now() time.Duration { return time.Since(b.began) }

// run gives the fabric its time.
func (b *board) run(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-b.wake:
		case <-timer.C:
		}
		now := b.now()
		next := b.fabric.Step(now)
		b.mu.Lock()
		in, out := b.in.Release(now, nil), b.out.Release(now, nil)
		next = min(next, b.in.Next(), b.out.Next())
		b.mu.Unlock()
		for _, d := range in {
			b.fabric.Receive(now, d.Payload)
		}
		for _, d := range out {
			b.send(d.Payload)
		}
		timer.Reset(min(next-b.now(), b.idle))
	}
}

// kick has the fabric look at its registers, or at what arrived.
func (b *board) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Take is for segment.attach.
func (b *board) Take(frame []byte) {
	now := b.now()
	b.mu.Lock()
	passed := b.in.Pass(now, model.Datagram{Payload: frame}, nil)
	b.mu.Unlock()
	for _, d := range passed {
		b.fabric.Receive(now, d.Payload)
	}
	b.kick()
}

// Transmit is the fabric's port.
func (b *board) Transmit(frames [][]byte) (taken, dropped int) {
	for _, f := range frames {
		b.mu.Lock()
		b.scrap = b.out.Pass(b.now(), model.Datagram{Payload: f}, b.scrap[:0])
		passed := b.scrap
		b.mu.Unlock()
		for _, d := range passed {
			if !b.send(d.Payload) {
				dropped++
			}
		}
	}
	return len(frames), dropped
}

// send pads as a MAC does.
func (b *board) send(frame []byte) bool {
	var padded [roce.MinFrame]byte
	if len(frame) < len(padded) {
		copy(padded[:], frame)
		frame = padded[:]
	}
	_, err := b.segment.Wire.Write(frame)
	return err == nil
}

func (b *board) faults() (out, in model.FaultCounters) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Count, b.in.Count
}

func (b *board) write(bus regs.Bus, r regs.Reg, v uint32) {
	b.t.Helper()
	if err := r.Write(bus, v); err != nil {
		b.t.Fatal(err)
	}
}

func (b *board) write64(bus regs.Bus, r regs.Reg64, v uint64) {
	b.t.Helper()
	if err := r.Write(bus, v); err != nil {
		b.t.Fatal(err)
	}
}

func (b *board) mac(high, low regs.Reg, m roce.MAC) {
	b.t.Helper()
	b.write(b.core, high, uint32(m[0])<<8|uint32(m[1]))
	b.write(b.core, low, uint32(m[2])<<24|uint32(m[3])<<16|uint32(m[4])<<8|uint32(m[5]))
}

func (b *board) address(r regs.Reg, a netip.Addr) {
	b.t.Helper()
	w := a.As16()
	for i := range 4 {
		b.write(b.core, r+regs.Reg(4*i), uint32(w[4*i])<<24|uint32(w[4*i+1])<<16|uint32(w[4*i+2])<<8|uint32(w[4*i+3]))
	}
}

// command runs a command of the core or the stream engine, both of which have
// these registers at the same places.
func (b *board) command(bus regs.Bus, op uint32) {
	b.t.Helper()
	b.write(bus, regs.CoreCommand, regs.CoreCommandOp.Of(op))
	b.kick()
	// A bus acts before a write returns, memory is looked at some time.
	for limit := time.Now().Add(commandLimit); ; time.Sleep(b.idle / 10) {
		if word, err := regs.CoreCommand.Read(bus); err != nil {
			b.t.Fatal(err)
		} else if word == 0 {
			break
		} else if time.Now().After(limit) {
			b.t.Fatalf("fabric: command %d has not ended within %v", op, commandLimit)
		}
	}
	status, err := regs.CoreCommandStatus.Read(bus)
	if err != nil {
		b.t.Fatal(err)
	}
	if status != regs.CoreCommandStatusCodeOK {
		detail, _ := regs.CoreCommandDetail.Read(bus)
		b.t.Fatalf("fabric: command %d: status %d, detail %#x", op, status, detail)
	}
	b.kick()
}

// commandLimit is long for a machine that others use too.
const commandLimit = 5 * time.Second

// link is how the queue pair deals with silence.
type link struct {
	window                       uint32
	timeout, retries, rnrRetries uint32
}

// patient suits an emulated guest on a busy machine: more than a second without
// an answer means that it is lost. quick is for where frames are.
var (
	patient = link{window: 64, timeout: 18, retries: 7, rnrRetries: 7}
	quick   = link{window: 64, timeout: 15, retries: 7, rnrRetries: 7}
)

// connect programs the queue pair, anew if it was used before.
func (b *board) connect(qpn roce.QPN, local roce.QPN, mtu roce.MTU, l link) {
	b.t.Helper()
	b.command(b.stream, regs.StreamCommandOpReset)
	b.command(b.core, regs.CoreCommandOpReset)
	b.write(b.core, regs.CoreQpConfig, regs.CoreQpConfigMTU.Of(uint32(mtu.Code()))|regs.CoreQpConfigTimeout.Of(l.timeout)|
		regs.CoreQpConfigRetryCount.Of(l.retries)|regs.CoreQpConfigRNRRetry.Of(l.rnrRetries))
	b.write(b.core, regs.CoreQpLocalQPN, uint32(local))
	b.write(b.core, regs.CoreQpRemoteQPN, uint32(qpn))
	b.write(b.core, regs.CoreQpStartPSN, uint32(boardPSN))
	b.write(b.core, regs.CoreQpWindow, l.window)
	b.write(b.core, regs.CoreQpSourcePort, 0xC123)
	b.write(b.core, regs.CoreQpTraffic, regs.CoreQpTrafficHopLimit.Of(64))
	b.write(b.core, regs.CoreQpPKey, roce.PKeyDefault)
	b.mac(regs.CoreQpRemoteMACHigh, regs.CoreQpRemoteMACLow, b.segment.guestMAC)
	b.address(regs.CoreQpRemoteIP0, b.segment.guestIP)
	b.command(b.core, regs.CoreCommandOpCommit)
}

// stream are the settings of what is sent.
type stream struct {
	verb                   uint32
	external, crc          bool
	pattern                uint32
	size, slots, stride    uint32
	address, credit, count uint64
	rkey                   uint32
	kbps                   uint32
}

// begin starts the stream.
func (b *board) begin(s stream) {
	b.t.Helper()
	c := regs.StreamConfigVerb.Of(s.verb) | regs.StreamConfigPattern.Of(s.pattern)
	if s.external {
		c |= regs.StreamConfigSource.Of(regs.StreamConfigSourceExternal)
	}
	if s.crc {
		c |= regs.StreamConfigCRC.Of(1)
	}
	b.write(b.stream, regs.StreamConfig, c)
	b.write(b.stream, regs.StreamFrameBytes, s.size)
	b.write(b.stream, regs.StreamSlots, max(s.slots, 1))
	b.write(b.stream, regs.StreamStride, s.stride)
	b.write64(b.stream, regs.StreamBase, s.address)
	b.write(b.stream, regs.StreamRKey, s.rkey)
	b.write64(b.stream, regs.StreamCredit, s.credit)
	b.write(b.stream, regs.StreamRateKbps, s.kbps)
	b.write(b.stream, regs.StreamBurst, 0)
	b.write64(b.stream, regs.StreamCount, s.count)
	b.command(b.stream, regs.StreamCommandOpCommit)
	b.command(b.stream, regs.StreamCommandOpStart)
}

// state latches and returns the states of stream and queue pair.
func (b *board) state() (stream, qp, cause uint32) {
	b.t.Helper()
	b.command(b.stream, regs.StreamCommandOpLatch)
	b.command(b.core, regs.CoreCommandOpLatch)
	s, err := regs.StreamStatState.Read(b.stream)
	if err != nil {
		b.t.Fatal(err)
	}
	q, err := regs.CoreStatState.Read(b.core)
	if err != nil {
		b.t.Fatal(err)
	}
	return regs.StreamStatStateState.Get(s), regs.CoreStatStateState.Get(q), regs.CoreStatStateCause.Get(q)
}

// count reads a latched counter.
func (b *board) count(bus regs.Bus, r regs.Reg64) uint64 {
	b.t.Helper()
	v, err := r.Read(bus)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// counters are the latched counters of the queue pair that are not 0.
func (b *board) counters() counters {
	b.t.Helper()
	c := counters{}
	for name, r := range map[string]regs.Reg64{
		"messages acked": regs.CoreStatMessagesAcked, "packets sent": regs.CoreStatPacketsSent,
		"packets resent": regs.CoreStatPacketsResent, "timeouts": regs.CoreStatTimeouts,
		"sequence NAKs": regs.CoreStatSequenceNAKs, "RNR NAKs": regs.CoreStatRNRNAKs, "fatal NAKs": regs.CoreStatFatalNAKs,
		"stale ACKs": regs.CoreStatStaleAcks, "READ gaps": regs.CoreStatReadGaps,
	} {
		if n := b.count(b.core, r); n > 0 {
			c[name] = n
		}
	}
	return c
}

// settled returns what the guest's device has counted since earlier, once all
// frames that were sent either way have arrived. That no frame is missing or
// comes from nowhere is what it proves.
func (b *board) settled(ctx context.Context, t *testing.T, earlier counters) counters {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	const patience = 5 * time.Second // without a frame
	limit := time.NewTimer(patience)
	defer limit.Stop()
	var last [4]uint64
	for {
		rxe := b.segment.hardware(ctx, t).since(earlier)
		out, in := b.faults()
		if rxe["rcvd_pkts"] == out.Passed && rxe["sent_pkts"] == in.Passed+in.Dropped {
			return rxe
		}
		if now := [...]uint64{rxe["rcvd_pkts"], out.Passed, rxe["sent_pkts"], in.Passed + in.Dropped}; now != last {
			last = now
			limit.Reset(patience)
		}
		select {
		case <-tick.C:
		case <-limit.C:
			t.Errorf("frames: %d went to rxe and it got %d; it sent %d and %d came",
				out.Passed, rxe["rcvd_pkts"], rxe["sent_pkts"], in.Passed+in.Dropped)
			return rxe
		}
	}
}

// finished waits until the stream has delivered everything, or has failed.
func (b *board) finished(done <-chan struct{}) (stream, qp, cause uint32) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s, q, c := b.state()
		if s == regs.StreamStatStateStateStopped || s == regs.StreamStatStateStateError {
			return s, q, c
		}
		select {
		case <-tick.C:
		case <-done:
			b.t.Fatalf("the stream has not ended in time: state %d, queue pair %d, cause %d, %d frames of %d acknowledged",
				s, q, c, b.count(b.stream, regs.StreamStatFramesDone), b.count(b.stream, regs.StreamStatFramesPosted))
		}
	}
}

// peer is the board to a Host.
func (b *board) peer(mtu roce.MTU) *session.Peer {
	return &session.Peer{QPN: boardQPN, PSN: boardPSN, IP: b.segment.Address, MAC: b.segment.MAC, MTU: mtu}
}
