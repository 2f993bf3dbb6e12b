//go:build verilator

package core

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"rocelink/fpga/model"
	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// The RTL and the Go model get the same register writes and the same frames at
// the same times, when neither has anything left to do, and must send the same
// packets and show the same registers after each. What only one of them has is
// left out: IPv6, CRC, tags and options.

const cycle = 4 * time.Nanosecond

// step is one thing done to both. Its numbers decide everything, so that a
// sequence without some of its steps is a sequence too.
type step struct {
	kind string
	seed uint64
}

func (s step) String() string { return fmt.Sprintf("%s(%d)", s.kind, s.seed) }

// kinds of steps, the common ones more often.
var kinds = []string{
	"setup", "setup", "setup", "setup", "qp", "stream", "start", "ack", "ack", "ack", "ack", "ack", "ack",
	"rnr", "nak", "fatal", "stale", "damage", "damage", "opcode", "wait", "stop",
	"command", "reset qp", "reset stream", "enable",
	"read", "read", "read", "credit", "response", "response", "response", "response", "response", "response", "wrong response", "wrong response", "wrong response",
}

// pair is both sides.
type pair struct {
	*bench
	seen   map[string]bool // registers that were not zero
	f      *model.Fabric
	stood  time.Duration // where the model is
	bus    regs.Bus
	mine   [][]byte // frames of the RTL
	others [][]byte // of the model
	// READ requests that the model sent, by queue pair and PSN.
	asked   [8]map[roce.PSN]request
	streams [8]streamConfig
	mtus    [8]roce.MTU
}

type request struct {
	address uint64
	length  int
	mtu     roce.MTU
}

func (p *pair) Transmit(frames [][]byte) (taken, dropped int) {
	for _, f := range frames {
		p.others = append(p.others, bytes.Clone(f))
		var d roce.Frame
		if d.Decode(f) == nil && d.Packet.Opcode == roce.ReadRequest {
			if i := int(d.Packet.DestQP) - 0xabc00; i >= 0 && i < len(p.asked) {
				p.asked[i][d.Packet.PSN] = request{d.Packet.RETH.Address, int(d.Packet.RETH.Length), p.mtus[i]}
			}
		}
	}
	return len(frames), 0
}

func newPair(t testing.TB, seed uint32, sources ...*model.Source) *pair {
	p := &pair{bench: open(t, seed)}
	for i := range p.asked {
		p.asked[i] = map[roce.PSN]request{}
	}
	f, err := model.New(model.Config{Port: p, QueuePairs: 8, Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p.f, p.bus = f, f.Bus()
	cmac := regs.At(p.bus, model.CMACBase)
	p.put(cmac, regs.CMACConfigRx, regs.CMACConfigRxEnable.Of(1))
	p.put(cmac, regs.CMACConfigTx, regs.CMACConfigTxEnable.Of(1))
	p.both(func(b *bench) { b.enable() })
	p.settle()
	return p
}

// both does something to the RTL and then to the model, at the same time.
func (p *pair) both(do func(*bench)) {
	p.settle()
	do(p.bench)
	p.step(p.now())
	do(&bench{TB: p.TB, Core: nil, stream: regs.At(p.bus, model.StreamBase), core: p.bus})
	p.settle()
}

func (p *pair) now() time.Duration { return time.Duration(p.Cycle()) * cycle }

// step has the model do what is due at a time, if it is not further, and says when
// it goes on.
func (p *pair) step(to time.Duration) time.Duration {
	p.stood = max(p.stood, to)
	for {
		if next := p.f.Step(p.stood); next > p.stood {
			return next
		}
	}
}

// settle lets both do all that they can do now, and passes over deadlines that
// are so near that one might see them and the other not.
func (p *pair) settle() {
	const margin = 6000 * cycle
	for range 200 {
		for quiet := 0; quiet < 2; quiet++ {
			p.Run(400)
			for _, f := range p.Take() {
				p.mine = append(p.mine, f.Data)
				quiet = -1
			}
		}
		// The model acts when it is time, also when the RTL's has come meanwhile.
		at := p.step(p.stood)
		if at > p.now() {
			at = p.step(p.now())
		}
		if at-p.now() > margin {
			return
		}
		// The RTL may be some hundred cycles later.
		for p.step(at); p.now() < at+margin/2; {
			p.Run(500)
		}
	}
	p.Fatal("deadlines without end")
}

// do carries a step out.
func (p *pair) do(s step) {
	rng := rand.New(rand.NewPCG(s.seed, 77))
	index := uint32(rng.IntN(3))
	pick := func(values ...uint32) uint32 { return values[rng.IntN(len(values))] }
	// mostly returns the first value, now and then one of the others.
	mostly := func(values ...uint32) uint32 {
		if rng.IntN(25) != 0 {
			return values[0]
		}
		return pick(values...)
	}
	switch s.kind {
	case "setup":
		// A queue pair and a stream that run.
		q := qp(int(index))
		q.mtu, q.window, q.psn = roce.MTU(pick(256, 1024, 4096)), pick(2, 7, 40), roce.PSN(rng.Uint32N(1<<24))
		q.timeout, q.retry, q.rnrRetry = pick(0, 4), uint32(rng.IntN(8)), uint32(rng.IntN(8))
		c := streamConfig{verb: uint32(rng.IntN(4)), kind: pattern.Kind(rng.IntN(2)), bytes: pick(0, 100, 3000, 9000), slots: 3, stride: 9016}
		p.run(true, regs.StreamCommandOpReset, index)
		p.run(false, regs.CoreCommandOpReset, index)
		p.both(func(b *bench) { b.program(q); b.describe(c) })
		p.run(false, regs.CoreCommandOpCommit, index)
		p.run(true, regs.StreamCommandOpCommit, index)
		p.run(true, regs.StreamCommandOpStart, index)
	case "read", "credit":
		// One that reads, or that asks for credit.
		q := qp(int(index))
		q.mtu, q.window, q.psn = roce.MTU(pick(256, 1024, 4096)), pick(4, 7, 40), roce.PSN(rng.Uint32N(1<<24))
		q.timeout, q.retry, q.rnrRetry = pick(0, 4), uint32(rng.IntN(8)), uint32(rng.IntN(8))
		c := streamConfig{verb: regs.StreamConfigVerbRead, kind: pattern.Kind(rng.IntN(2)), bytes: pick(0, 7, 256, 3000, 9000), slots: pick(1, 2, 3),
			stride: 9016, base: rng.Uint64() >> 2, rkey: rng.Uint32(), solicited: rng.IntN(2) == 0, count: uint64(pick(0, 0, 2))}
		if s.kind == "credit" {
			c.verb, c.bytes, c.slots, c.credit = regs.StreamConfigVerbWrite, pick(0, 100, 3000), pick(1, 3, 8), rng.Uint64()&^7|8
		}
		p.run(true, regs.StreamCommandOpReset, index)
		p.run(false, regs.CoreCommandOpReset, index)
		p.both(func(b *bench) { b.program(q); b.describe(c) })
		p.run(false, regs.CoreCommandOpCommit, index)
		p.run(true, regs.StreamCommandOpCommit, index)
		p.asked[index], p.streams[index], p.mtus[index] = map[roce.PSN]request{}, c, q.mtu
		p.run(true, regs.StreamCommandOpStart, index)
	case "response":
		// To the oldest READ, as it should be.
		for range 1 + rng.IntN(12) {
			if f := p.anyResponse(index, rng); f != nil {
				p.receive(f)
			}
		}
	case "wrong response":
		for range 1 + rng.IntN(5) {
			f := p.anyResponse(index, rng)
			if f == nil {
				return
			}
			switch rng.IntN(9) {
			case 0, 6: // a gap, or one that came
				psn := roce.PSN(binary.BigEndian.Uint32(f[50:]) & roce.PSNMask).Add(rng.IntN(9) - 4)
				f[51], f[52], f[53] = byte(psn>>16), byte(psn>>8), byte(psn)
			case 1:
				f[42] = byte(roce.ReadResponseFirst) + byte(rng.IntN(4))
			case 2:
				f[54] = byte(rng.IntN(256))
			case 4: // another length
				n := min(len(f), 62+4*rng.IntN(300))
				f = f[:n]
				binary.BigEndian.PutUint16(f[16:], uint16(n-14))
				binary.BigEndian.PutUint16(f[38:], uint16(n-34))
			case 5:
				f[43] = f[43]&^0x30 | byte(rng.IntN(4))<<4 // pad
			default: // other data
				f[min(len(f)-5, 58+rng.IntN(9000))] ^= 1 << rng.IntN(8)
			}
			reseal(f)
			p.receive(f)
			if rng.IntN(3) == 0 {
				p.receive(f)
			}
		}
	case "qp":
		q := qp(int(index))
		q.mtu = roce.MTU(pick(256, 512, 1024, 4096))
		q.window = mostly(pick(1, 3, 16, 40), 0, 257, 256)
		q.timeout, q.retry, q.rnrRetry = pick(0, 4, 5), uint32(rng.IntN(8)), uint32(rng.IntN(8))
		q.psn = roce.PSN(mostly(rng.Uint32N(1<<24), 0xffffff, 1<<24))
		q.localQPN = roce.QPN(mostly(uint32(q.localQPN), 0x101, 1, 1<<24))
		q.peerQPN = roce.QPN(mostly(uint32(q.peerQPN), 0, 1<<24))
		bad := []struct {
			r regs.Reg
			v uint32
		}{
			{regs.CoreQpConfig, 0}, {regs.CoreQpConfig, 6}, {regs.CoreQpSourcePort, 0}, {regs.CoreQpSourcePort, 1 << 16},
			{regs.CoreQpTraffic, 0x12}, {regs.CoreQpPKey, 1 << 16}, {regs.CoreQpRemoteMACHigh, 1 << 16},
			{regs.CoreQpRemoteMACHigh, 0x0100}, {regs.CoreQpRemoteIP3, 0}, {regs.CoreQpRemoteIP3, 0xe0000001},
		}[rng.IntN(10)]
		spoil := rng.IntN(12) == 0
		p.both(func(b *bench) {
			b.program(q)
			if spoil {
				b.put(b.bus(), bad.r, bad.v)
			}
		})
		p.run(false, regs.CoreCommandOpCommit, index)
	case "stream":
		c := streamConfig{verb: mostly(uint32(rng.IntN(5)), 5), kind: pattern.Kind(mostly(uint32(rng.IntN(2)), 2)),
			solicited: rng.IntN(2) == 0, bytes: mostly(pick(0, 1, 64, 500, 3000, 9000), 1<<24+1),
			slots: mostly(pick(1, 2, 5), 0), base: rng.Uint64() &^ (1 << 63), rkey: rng.Uint32(), count: uint64(pick(0, 1, 2, 7))}
		c.stride = mostly((c.bytes+16+7)&^7, c.bytes, 12)
		if rng.IntN(20) == 0 {
			c.base = ^uint64(0) - 1000
		}
		p.both(func(b *bench) { b.describe(c) })
		p.run(true, regs.StreamCommandOpCommit, index)
	case "start":
		p.run(true, regs.StreamCommandOpStart, index)
	case "stop":
		p.run(true, regs.StreamCommandOpStop, index)
	case "reset stream":
		p.run(true, regs.StreamCommandOpReset, index)
	case "reset qp":
		p.run(false, regs.CoreCommandOpReset, index)
	case "command":
		p.run(rng.IntN(2) == 0, mostly(4, 0, 5, 6, 99), pick(index, 7, 8, 16, 255))
	case "enable":
		on := uint32(rng.IntN(2))
		p.both(func(b *bench) { b.put(b.bus(), regs.CoreControl, on) })
		if on == 0 && rng.IntN(2) == 0 {
			p.receive(p.ack(index, rng, roce.ACK(31), 1))
		}
		p.both(func(b *bench) { b.put(b.bus(), regs.CoreControl, 1) })
	case "wait":
		for end := p.Cycle() + uint64(rng.IntN(60000)); p.Cycle() < end; {
			p.settle()
		}
	case "ack":
		p.receive(p.ack(index, rng, roce.ACK(uint8(rng.IntN(32))), 1+rng.IntN(20)))
	case "stale":
		p.receive(p.ack(index, rng, roce.ACK(31), -rng.IntN(5)))
		p.receive(p.ack(index, rng, roce.ACK(31), 300+rng.IntN(1<<22)))
	case "rnr":
		// Short delays, which settle passes over: meanwhile the RTL already
		// fills its ring, and the model makes packets when it may send.
		f := p.ack(index, rng, roce.RNRNak(uint8(1+rng.IntN(2))), 1+rng.IntN(3))
		if rng.IntN(3) == 0 {
			p.receive(f, f) // the second is a copy
		} else {
			p.receive(f)
		}
	case "nak":
		p.receive(p.ack(index, rng, roce.Nak(roce.PSNSequenceError), 1+rng.IntN(3)))
	case "fatal":
		p.receive(p.ack(index, rng, roce.Nak(roce.NakCode(rng.IntN(6))), 1+rng.IntN(3)))
	case "opcode":
		// Any opcode, with the room that its headers need or not.
		f := p.frame(index, roce.PSN(rng.Uint32N(1<<24)), roce.ACK(0))
		f = append(f, make([]byte, rng.IntN(40))...)
		f[42] = byte(rng.IntN(0x18))
		reseal(f)
		p.receive(f)
	case "damage":
		f := p.ack(index, rng, roce.ACK(31), 1)
		if rng.IntN(3) == 0 {
			f = append(f, make([]byte, rng.IntN(300))...) // Ethernet padding, or a longer packet
		}
		for range rng.IntN(3) {
			f[rng.IntN(len(f))] ^= 1 << rng.IntN(8)
		}
		switch rng.IntN(4) {
		case 0:
			f = f[:1+rng.IntN(len(f))]
		case 1:
			reseal(f)
		}
		p.receive(f)
	}
}

// bus is the Core block on either side.
func (b *bench) bus() regs.Bus {
	if b.core != nil {
		return b.core
	}
	return b.Core
}

// run carries a command out on both sides; they must end alike.
func (p *pair) run(stream bool, op, index uint32) {
	var ends [][2]uint32
	p.both(func(b *bench) {
		bus := b.bus()
		if stream {
			bus = b.stream
		}
		code, detail := b.command(bus, op, index)
		ends = append(ends, [2]uint32{code, detail})
	})
	if ends[0] != ends[1] {
		p.Errorf("command %d of %d (stream: %t): status and detail %v, model %v", op, index, stream, ends[0], ends[1])
	}
}

// frame is a response to a queue pair.
func (p *pair) frame(index uint32, psn roce.PSN, s roce.Syndrome) []byte {
	f := roce.Frame{Dst: localMAC, Src: peerMAC, TTL: 64}
	f.Flow = roce.Flow{Src: remoteIP, Dst: localIP, SrcPort: 4791, ID: uint16(psn)}
	f.Packet.BTH = roce.BTH{Opcode: roce.Acknowledge, PKey: roce.PKeyDefault, DestQP: roce.QPN(0x100 + index), PSN: psn}
	f.Packet.AETH = roce.AETH{Syndrome: s, MSN: uint32(psn) & 0xffff}
	b := make([]byte, f.Len())
	if _, err := f.Put(b); err != nil {
		p.Fatal(err)
	}
	return b
}

// anyResponse is a response to a queue pair or, if it waits for none, to another.
func (p *pair) anyResponse(index uint32, rng *rand.Rand) []byte {
	for i := range uint32(3) {
		if f := p.response((index+i)%3, rng); f != nil {
			return f
		}
	}
	return nil
}

// response is the next one to the oldest READ of a queue pair, now and then from
// where the request is repeated; nil if there is none. What was asked for is
// known from the requests that the model sent.
func (p *pair) response(index uint32, rng *rand.Rand) []byte {
	p.must(p.Core, regs.CoreCommandOpLatch, index)
	una := roce.PSN(p.get(p.Core, regs.CoreStatUnackedPSN))
	r, ok := p.asked[index][una]
	from := una
	for back := 1; !ok && back < 40; back++ { // the request began before
		from = una.Add(-back)
		r, ok = p.asked[index][from]
	}
	if !ok {
		return nil
	}
	skip := una.Sub(from) * int(r.mtu)
	if skip > 0 && skip >= r.length {
		return nil
	}
	f := roce.Frame{Dst: localMAC, Src: peerMAC, TTL: 64}
	f.Flow = roce.Flow{Src: remoteIP, Dst: localIP, SrcPort: 4791}
	f.Packet.BTH = roce.BTH{PKey: roce.PKeyDefault, DestQP: roce.QPN(0x100 + index), PSN: una}
	f.Packet.AETH = roce.AETH{Syndrome: roce.ACK(31), MSN: uint32(una) & 0xffff}
	n := min(r.length-skip, int(r.mtu))
	first, last := skip == 0, skip+n == r.length
	switch {
	case first && last:
		f.Packet.Opcode = roce.ReadResponseOnly
	case first:
		f.Packet.Opcode = roce.ReadResponseFirst
	case last:
		f.Packet.Opcode = roce.ReadResponseLast
	default:
		f.Packet.Opcode = roce.ReadResponseMiddle
	}
	f.Packet.Payload = make([]byte, n)
	if c := p.streams[index]; c.verb == regs.StreamConfigVerbRead {
		at := r.address - c.base + uint64(skip)
		pattern.FillAt(f.Packet.Payload, c.kind, at/9016, int(at%9016))
	} else {
		// The host released some of what it got.
		binary.LittleEndian.PutUint64(f.Packet.Payload, rng.Uint64N(20))
	}
	b := make([]byte, f.Len())
	if _, err := f.Put(b); err != nil {
		p.Fatal(err)
	}
	return b
}

// ack is a response whose PSN lies that far behind the newest acknowledged one.
func (p *pair) ack(index uint32, rng *rand.Rand, s roce.Syndrome, distance int) []byte {
	p.must(p.Core, regs.CoreCommandOpLatch, index)
	una := roce.PSN(p.get(p.Core, regs.CoreStatUnackedPSN))
	next := roce.PSN(p.get(p.Core, regs.CoreStatNextPSN))
	// Mostly one that is on its way.
	if n := int(next.Sub(una)); distance > n && n > 0 && rng.IntN(8) != 0 {
		distance = 1 + rng.IntN(n)
	}
	return p.frame(index, una.Add(distance-1), s)
}

// reseal makes checksum, lengths and ICRC of a frame right again where that is
// possible.
func reseal(b []byte) {
	if len(b) < 60 {
		return
	}
	binary.BigEndian.PutUint16(b[24:], 0)
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[24:], ^uint16(sum))
	var f roce.Frame
	f.Decode(b)
	if t := f.Transport(b); t != nil {
		f.Flow.Seal(t)
	}
}

// receive gives frames to both, one behind the other.
func (p *pair) receive(frames ...[]byte) {
	b := frames[0]
	if len(b) >= 15 {
		switch t := binary.BigEndian.Uint16(b[12:]); {
		case t == 0x8100, t == 0x88a8, t == 0x86dd, t == 0x0800 && b[14]>>4 == 4 && b[14]&15 > 5:
			return // see above
		}
	}
	p.settle()
	for _, b := range frames {
		p.Receive(b, 0)
		p.f.Receive(p.now(), bytes.Clone(b))
		p.stood = p.now()
	}
	p.settle()
}

// compare looks at all that both show.
func (p *pair) compare() {
	by := func(frames [][]byte) map[uint32][][]byte {
		m := map[uint32][][]byte{}
		for _, f := range frames {
			qpn := binary.BigEndian.Uint32(f[46:]) & roce.QPNMask
			m[qpn] = append(m[qpn], f)
		}
		return m
	}
	mine, others := by(p.mine), by(p.others)
	p.mine, p.others = nil, nil
	for qpn := range others {
		mine[qpn] = append([][]byte(nil), mine[qpn]...)
	}
	for qpn, frames := range mine {
		want := others[qpn]
		for i := range max(len(frames), len(want)) {
			var a, b []byte
			if i < len(frames) {
				a = frames[i]
			}
			if i < len(want) {
				b = want[i]
				if len(b) < roce.MinFrame { // the core pads
					b = append(slices.Clone(b), make([]byte, roce.MinFrame-len(b))...)
				}
			}
			if !bytes.Equal(a, b) {
				p.Errorf("QPN %#x: packet %d of %d (model: %d) differs:\n%s\n%s", qpn, i, len(frames), len(want), describe(a), describe(b))
				break
			}
		}
	}
	stream := regs.At(p.bus, model.StreamBase)
	for index := range uint32(3) {
		p.settle() // reading takes time
		p.must(p.Core, regs.CoreCommandOpLatch, index)
		p.must(p.bus, regs.CoreCommandOpLatch, index)
		p.must(p.stream, regs.StreamCommandOpLatch, index)
		p.must(stream, regs.StreamCommandOpLatch, index)
		for _, blk := range regs.Blocks() {
			a, b := regs.Bus(p.Core), p.bus
			switch blk.Name {
			case "Stream":
				a, b = p.stream, stream
			case "CMAC":
				continue
			}
			for _, r := range blk.Regs {
				if r.Name == "Uptime" || r.Offset < 0x180 {
					continue
				}
				for w := range uint32(r.Words()) {
					if x, y := p.get(a, regs.Reg(r.Offset+4*w)), p.get(b, regs.Reg(r.Offset+4*w)); x != y {
						p.Errorf("queue pair %d: %s.%s is %#x, model %#x", index, blk.Name, r.Name, x, y)
					} else if x != 0 {
						p.seen[blk.Name+"."+r.Name] = true
					}
				}
			}
		}
	}
}

func describe(b []byte) string {
	if b == nil {
		return "  none"
	}
	var f roce.Frame
	err := f.Decode(b)
	return fmt.Sprintf("  %v PSN %#x ack %t se %t pad %d, %d bytes of payload, RETH %+v, imm %#x, %v, ICRC right: %t", f.Packet.Opcode,
		f.Packet.PSN, f.Packet.AckReq, f.Packet.SolicitedEvent, f.Packet.PadCount, len(f.Packet.Payload), f.Packet.RETH, f.Packet.Imm, err, f.ICRCOK(b))
}

// attempt is a testing.TB that keeps what went wrong to itself.
type attempt struct {
	testing.TB
	errors []string
	clean  []func()
}

type stopped struct{}

func (a *attempt) Helper() {}
func (a *attempt) Errorf(format string, args ...any) {
	a.errors = append(a.errors, fmt.Sprintf(format, args...))
}
func (a *attempt) Fatalf(format string, args ...any) { a.Errorf(format, args...); panic(stopped{}) }
func (a *attempt) Fatal(args ...any)                 { a.Fatalf("%s", fmt.Sprintln(args...)) }
func (a *attempt) Cleanup(f func())                  { a.clean = append(a.clean, f) }

// try runs a sequence and returns the first step after which the two differ, or
// -1, and how.
func try(t testing.TB, steps []step, seen map[string]bool) (at int, errors []string) {
	a := &attempt{TB: t}
	at = -1
	defer func() {
		for _, f := range slices.Backward(a.clean) {
			f()
		}
		if r := recover(); r != nil {
			if _, ok := r.(stopped); !ok {
				panic(r)
			}
		}
		errors = a.errors
		if len(errors) > 0 && at < 0 {
			at = len(steps) - 1
		}
	}()
	p := newPair(a, 1)
	p.seen = seen
	for i, s := range steps {
		at = i
		p.do(s)
		p.compare()
		if len(a.errors) > 0 {
			return
		}
	}
	at = -1
	return
}

// shrink leaves out steps as long as the two still differ.
func shrink(t testing.TB, steps []step) []step {
	for size := max(1, len(steps)/2); size > 0; size /= 2 {
		for i := 0; i+size <= len(steps); {
			fewer := slices.Concat(steps[:i], steps[i+size:])
			if at, _ := try(t, fewer, map[string]bool{}); at >= 0 {
				steps = fewer[:at+1]
			} else {
				i += size
			}
		}
	}
	return steps
}

// ROCELINK_RTL_SEEDS says how many sequences TestEqual tries.
func TestEqual(t *testing.T) {
	seeds := 25
	if n, err := strconv.Atoi(os.Getenv("ROCELINK_RTL_SEEDS")); err == nil {
		seeds = n
	}
	first := 0
	if n, err := strconv.Atoi(os.Getenv("ROCELINK_RTL_FIRST")); err == nil {
		first = n
	}
	seen := map[string]bool{}
	for seed := range seeds {
		seed += first
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		// Something to begin with.
		steps := []step{{"qp", rng.Uint64() >> 40}, {"stream", rng.Uint64() >> 40}, {"setup", rng.Uint64() >> 40}}
		for range 60 {
			steps = append(steps, step{kinds[rng.IntN(len(kinds))], rng.Uint64() >> 40})
		}
		at, _ := try(t, steps, seen)
		if at < 0 {
			continue
		}
		steps = shrink(t, steps[:at+1])
		_, errors := try(t, steps, map[string]bool{})
		t.Fatalf("seed %d: after %v:\n%s", seed, steps, errors)
	}
	if seeds < 25 {
		return
	}
	// What was zero all the time was not compared.
	for _, blk := range regs.Blocks() {
		for _, r := range blk.Regs {
			name := blk.Name + "." + r.Name
			if r.Access == regs.TIK && blk.Name != "CMAC" && !seen[name] && !slices.Contains(without, r.Name) {
				t.Errorf("%s was zero in every sequence", name)
			}
		}
	}
}

// without are the counters of what the RTL does not have, or this test does not
// reach.
var without = []string{"Uptime", "StatSourceDropped", "TxDropped"}
