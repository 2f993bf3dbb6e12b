package model

import (
	"bytes"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

var (
	fabricMAC = roce.MAC{2, 0, 0, 0, 0, 0x0a}
	hostMAC   = roce.MAC{2, 0, 0, 0, 0, 0x14}
	fabricIP  = netip.MustParseAddr("192.0.2.10")
	hostIP    = netip.MustParseAddr("192.0.2.20")
)

// world is a fabric, a host and a network between them in virtual time.
type world struct {
	t      testing.TB
	f      *Fabric
	bus    *Bus
	core   regs.Bus
	stream regs.Bus
	cmac   regs.Bus
	host   *host
	now    time.Duration
	oneWay time.Duration
	gap    time.Duration // between two packets of a batch on the wire
	busy   [2]time.Duration
	wire   []flight
	to     *Faults // to the host
	from   *Faults
	frames bool // the fabric receives Ethernet frames, not datagrams
	tap    func(frame []byte)
	polled bool // the fabric acts some time after a write
	lose   func(toHost bool, p *roce.Packet) bool
	refuse int // frames that the port refuses of the next batch
	scrap  []Datagram
}

// flight is a datagram on the wire.
type flight struct {
	at     time.Duration
	toHost bool
	d      Datagram
}

func newWorld(t testing.TB, cfg Config, faults FaultConfig) *world {
	t.Helper()
	w := &world{t: t, oneWay: 10 * time.Microsecond, to: NewFaults(faults, 1), from: NewFaults(faults, 2)}
	w.host = &host{addr: hostIP, mac: hostMAC, qps: map[roce.QPN]*hostQP{}}
	cfg.Port = w
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	w.f = f
	w.bus = f.Bus()
	w.core, w.stream, w.cmac = regs.At(w.bus, CoreBase), regs.At(w.bus, StreamBase), regs.At(w.bus, CMACBase)
	w.bringUp()
	return w
}

func (w *world) bringUp() {
	w.write(w.cmac, regs.CMACConfigRx, regs.CMACConfigRxEnable.Of(1))
	w.write(w.cmac, regs.CMACConfigTx, regs.CMACConfigTxEnable.Of(1))
	w.write(w.core, regs.CoreLocalMACHigh, 0x0200)
	w.write(w.core, regs.CoreLocalMACLow, 0x0000000a)
	w.address(regs.CoreLocalIP0, fabricIP)
	w.write(w.core, regs.CoreControl, regs.CoreControlEnable.Of(1))
}

func (w *world) address(r regs.Reg, a netip.Addr) {
	w.t.Helper()
	b := a.As16()
	for i := range 4 {
		w.write(w.core, r+regs.Reg(4*i), uint32(b[4*i])<<24|uint32(b[4*i+1])<<16|uint32(b[4*i+2])<<8|uint32(b[4*i+3]))
	}
}

func (w *world) write(b regs.Bus, r regs.Reg, v uint32) {
	w.t.Helper()
	if err := r.Write(b, v); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write64(b regs.Bus, r regs.Reg64, v uint64) {
	w.t.Helper()
	if err := r.Write(b, v); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(b regs.Bus, r regs.Reg) uint32 {
	w.t.Helper()
	v, err := r.Read(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) read64(b regs.Bus, r regs.Reg64) uint64 {
	w.t.Helper()
	v, err := r.Read(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// command runs a command of either block and returns its status and detail.
func (w *world) command(b regs.Bus, op, index int) (code, detail uint32) {
	w.t.Helper()
	w.write(b, regs.CoreCommand, regs.CoreCommandOp.Of(uint32(op))|regs.CoreCommandIndex.Of(uint32(index)))
	if w.polled {
		w.settled("command", func() bool { return w.read(b, regs.CoreCommand) == 0 })
	}
	if v := w.read(b, regs.CoreCommand); v != 0 {
		w.t.Fatalf("command reads %#x after it was written", v)
	}
	return w.read(b, regs.CoreCommandStatus), w.read(b, regs.CoreCommandDetail)
}

func (w *world) must(b regs.Bus, op, index int) {
	w.t.Helper()
	if code, detail := w.command(b, op, index); code != regs.CoreCommandStatusCodeOK {
		w.t.Fatalf("command %d of %d: status %d, detail %#x", op, index, code, detail)
	}
}

// qpSettings are the registers of one queue pair.
type qpSettings struct {
	index      int
	mtu        roce.MTU
	psn        roce.PSN
	window     int
	timeout    uint8
	retries    uint8
	rnrRetries uint8
}

func (s qpSettings) local() roce.QPN  { return roce.QPN(0x100 + s.index) }
func (s qpSettings) remote() roce.QPN { return roce.QPN(0x200 + s.index) }

// defaults: 16.8 ms timeout, 7 retries, RNR for ever.
func defaults() qpSettings {
	return qpSettings{mtu: 1024, psn: 0xFFFFFE, window: 64, timeout: 12, retries: 7, rnrRetries: 7}
}

// fillQP writes the Qp* registers.
func (w *world) fillQP(s qpSettings) {
	w.t.Helper()
	c := regs.CoreQpConfigMTU.Of(uint32(s.mtu.Code()))
	c |= regs.CoreQpConfigTimeout.Of(uint32(s.timeout))
	c |= regs.CoreQpConfigRetryCount.Of(uint32(s.retries))
	c |= regs.CoreQpConfigRNRRetry.Of(uint32(s.rnrRetries))
	w.write(w.core, regs.CoreQpConfig, c)
	w.write(w.core, regs.CoreQpLocalQPN, uint32(s.local()))
	w.write(w.core, regs.CoreQpRemoteQPN, uint32(s.remote()))
	w.write(w.core, regs.CoreQpStartPSN, uint32(s.psn))
	w.write(w.core, regs.CoreQpWindow, uint32(s.window))
	w.write(w.core, regs.CoreQpSourcePort, 0xC000+uint32(s.index))
	w.write(w.core, regs.CoreQpTraffic, regs.CoreQpTrafficHopLimit.Of(64)|regs.CoreQpTrafficClass.Of(0x68))
	w.write(w.core, regs.CoreQpPKey, 0xFFFF)
	w.write(w.core, regs.CoreQpRemoteMACHigh, 0x0200)
	w.write(w.core, regs.CoreQpRemoteMACLow, 0x00000014)
	w.address(regs.CoreQpRemoteIP0, w.host.addr)
}

// openQP programs a queue pair and its counterpart at the host.
func (w *world) openQP(s qpSettings) *hostQP {
	w.t.Helper()
	w.fillQP(s)
	w.must(w.core, regs.CoreCommandOpCommit, s.index)
	return w.host.add(s.remote(), s.local(), s.mtu, s.psn)
}

// streamSettings are the registers of one stream.
type streamSettings struct {
	index               int
	verb                uint32
	external            bool
	kind                uint32
	crc, solicited      bool
	size, slots, stride uint32
	base, credit        uint64
	rkey                uint32
	kbps, burst         uint32
	count               uint64
}

func (w *world) fillStream(s streamSettings) {
	w.t.Helper()
	c := regs.StreamConfigVerb.Of(s.verb) | regs.StreamConfigPattern.Of(s.kind)
	if s.external {
		c |= regs.StreamConfigSource.Of(regs.StreamConfigSourceExternal)
	}
	if s.crc {
		c |= regs.StreamConfigCRC.Of(1)
	}
	if s.solicited {
		c |= regs.StreamConfigSolicited.Of(1)
	}
	w.write(w.stream, regs.StreamConfig, c)
	w.write(w.stream, regs.StreamFrameBytes, s.size)
	w.write(w.stream, regs.StreamSlots, s.slots)
	w.write(w.stream, regs.StreamStride, s.stride)
	w.write64(w.stream, regs.StreamBase, s.base)
	w.write(w.stream, regs.StreamRKey, s.rkey)
	w.write64(w.stream, regs.StreamCredit, s.credit)
	w.write(w.stream, regs.StreamRateKbps, s.kbps)
	w.write(w.stream, regs.StreamBurst, s.burst)
	w.write64(w.stream, regs.StreamCount, s.count)
}

func (w *world) startStream(s streamSettings) {
	w.t.Helper()
	w.fillStream(s)
	w.must(w.stream, regs.StreamCommandOpCommit, s.index)
	w.must(w.stream, regs.StreamCommandOpStart, s.index)
}

func (w *world) streamState(index int) uint32 {
	w.t.Helper()
	w.must(w.stream, regs.StreamCommandOpLatch, index)
	return regs.StreamStatStateState.Get(w.read(w.stream, regs.StreamStatState))
}

func (w *world) qpState(index int) (state, cause uint32) {
	w.t.Helper()
	w.must(w.core, regs.CoreCommandOpLatch, index)
	v := w.read(w.core, regs.CoreStatState)
	return regs.CoreStatStateState.Get(v), regs.CoreStatStateCause.Get(v)
}

// stat latches a queue pair and reads a counter.
func (w *world) stat(index int, r regs.Reg64) uint64 {
	w.t.Helper()
	w.must(w.core, regs.CoreCommandOpLatch, index)
	return w.read64(w.core, r)
}

func (w *world) streamStat(index int, r regs.Reg64) uint64 {
	w.t.Helper()
	w.must(w.stream, regs.StreamCommandOpLatch, index)
	return w.read64(w.stream, r)
}

// Transmit is the fabric's port.
func (w *world) Transmit(frames [][]byte) (taken, dropped int) {
	n := len(frames) - min(w.refuse, len(frames))
	w.refuse = 0
	for _, b := range frames[:n] {
		if w.tap != nil {
			w.tap(b)
		}
		var f roce.Frame
		if err := f.Decode(b); err != nil {
			w.t.Fatalf("the fabric sent %x: %v", b, err)
		}
		w.scrap = w.to.Pass(w.now, Datagram{
			Src:     netip.AddrPortFrom(f.Flow.Src, f.Flow.SrcPort),
			Dst:     netip.AddrPortFrom(f.Flow.Dst, roce.Port),
			Payload: f.Transport(b),
		}, w.scrap[:0])
		w.launch(w.scrap, true)
	}
	return n, 0
}

func (w *world) launch(batch []Datagram, toHost bool) {
	for _, d := range batch {
		if w.lose != nil {
			var p roce.Packet
			if err := p.Decode(d.Payload); err != nil {
				w.t.Fatal(err)
			}
			if w.lose(toHost, &p) {
				continue
			}
		}
		d.Payload = bytes.Clone(d.Payload)
		at := w.now + w.oneWay
		if w.gap > 0 {
			busy := &w.busy[0]
			if toHost {
				busy = &w.busy[1]
			}
			*busy = max(*busy+w.gap, at)
			at = *busy
		}
		w.wire = append(w.wire, flight{at, toHost, d})
	}
}

// reply sends packets from the host to the fabric.
func (w *world) reply(packets []roce.Packet) {
	for i := range packets {
		p := &packets[i]
		b := make([]byte, p.Len())
		if _, err := p.Put(b); err != nil {
			w.t.Fatal(err)
		}
		flow := roce.Flow{Src: w.host.addr, Dst: w.local(), SrcPort: 50000}
		flow.Seal(b)
		w.scrap = w.from.Pass(w.now, Datagram{
			Src:     netip.AddrPortFrom(flow.Src, flow.SrcPort),
			Dst:     netip.AddrPortFrom(flow.Dst, roce.Port),
			Payload: b,
		}, w.scrap[:0])
		w.launch(w.scrap, false)
	}
}

// local is the fabric's address of the host's family.
func (w *world) local() netip.Addr {
	a, _ := w.f.Local()
	return a
}

func (w *world) deliver(d Datagram) {
	if !w.frames {
		w.f.ReceiveDatagrams(w.now, []Datagram{d})
		return
	}
	w.f.Receive(w.now, etherFrame(d))
}

// etherFrame puts the headers before a datagram, whatever it holds.
func etherFrame(d Datagram) []byte {
	f := roce.Frame{Dst: fabricMAC, Src: hostMAC, Flow: roce.Flow{Src: d.Src.Addr(), Dst: d.Dst.Addr(), SrcPort: d.Src.Port()}}
	n := headerBytes(f.Flow.Is4())
	b := make([]byte, n+len(d.Payload)+64)
	// A packet of the same length makes the right headers.
	f.Packet.Opcode = roce.SendOnly
	if len(d.Payload)-roce.MinPacket > int(roce.MaxMTU) {
		f.Packet.Opcode = roce.WriteOnlyImm
	}
	f.Packet.Payload = make([]byte, len(d.Payload)-f.Packet.HeaderLen()-roce.ICRCLen)
	if _, err := f.Put(b); err != nil {
		panic(err)
	}
	copy(b[n:], d.Payload)
	return b[:roce.Pad(b, n+len(d.Payload))]
}

// tick advances time to the next event, at most to limit, and reports whether
// there was one.
func (w *world) tick(limit time.Duration) bool {
	next := w.f.Step(w.now)
	w.launch(w.to.Release(w.now, nil), true)
	w.launch(w.from.Release(w.now, nil), false)
	next = min(next, w.to.Next(), w.from.Next())
	for _, fl := range w.wire {
		next = min(next, fl.at)
	}
	if next > limit {
		return false
	}
	w.now = max(w.now, next)
	i := 0
	for i < len(w.wire) {
		if w.wire[i].at > w.now {
			i++
			continue
		}
		fl := w.wire[i]
		w.wire = slices.Delete(w.wire, i, i+1)
		if fl.toHost {
			w.reply(w.host.handle(fl.d))
		} else {
			w.deliver(fl.d)
		}
	}
	return true
}

// settled waits in real time for what a register shows.
func (w *world) settled(what string, cond func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: the fabric does not answer", what)
		}
	}
}

// until runs until a condition holds and fails after a virtual time.
func (w *world) until(what string, limit time.Duration, cond func() bool) {
	w.t.Helper()
	end := w.now + limit
	for !cond() {
		if !w.tick(end) {
			if cond() {
				return
			}
			w.t.Fatalf("%s: not within %v; queue pair 0: %+v", what, limit, w.f.qps[0].count)
		}
	}
	w.check()
}

// run lets a virtual time pass.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	end := w.now + d
	for w.tick(end) {
	}
	w.now = end
	w.check()
}

func (w *world) check() {
	w.t.Helper()
	var errs []error
	for _, q := range w.host.qps {
		errs = append(errs, q.err)
	}
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}
