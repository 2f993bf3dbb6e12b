// Package responder is the far end of a simulated link: a RoCE v2 responder of
// reliable connected service for one queue pair, and a link that loses,
// duplicates, reorders, delays and damages frames in both directions. Time is
// in cycles, everything is decided by one seed, and nothing here knows what is
// at the near end.
package responder

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"rocelink/fpga/roce"
)

// Faults are probabilities for each frame, in each direction.
type Faults struct {
	Drop, Duplicate, Reorder, Corrupt float64
}

// Config shapes a Peer. The zero value answers at once and loses nothing.
type Config struct {
	QPN       roce.QPN // our own
	RemoteQPN roce.QPN // where answers go
	StartPSN  roce.PSN
	MTU       roce.MTU
	// Delay is how long a frame is under way, in cycles, in each direction.
	Delay uint64
	Faults
	// AckEvery is how many packets one acknowledgement is for at most, if the
	// requester does not ask; 0 answers only when asked.
	AckEvery int
	// AckDelay holds every acknowledgement back, so that a later one covers it.
	AckDelay uint64
	// Stale is the probability that an old acknowledgement is sent again.
	Stale float64
	// RNR is the probability that a message finds no receiver, for RNRTimes
	// times at most.
	RNR      float64
	RNRTimes int
	RNRCode  uint8
	// Read returns n bytes of memory for a READ, nil if it may not be read.
	// Responses leave at least ReadGap cycles apart.
	Read    func(address uint64, rkey, n uint32) []byte
	ReadGap uint64
}

// Message is what arrived.
type Message struct {
	Op        roce.Opcode // of its last packet
	Address   uint64      // WRITE
	RKey      uint32
	Data      []byte
	Imm       uint32
	Solicited bool
}

type timed struct {
	at    uint64
	frame []byte
}

// Peer is a responder behind its link.
type Peer struct {
	cfg Config
	rng *rand.Rand

	in, out []timed // under way

	expected roce.PSN
	msn      uint32
	nakked   bool // a NAK for expected is out
	refused  int  // RNR NAKs for the present message
	chosen   bool // whether the present message finds a receiver is decided
	busy     bool // and it finds none
	current  *Message
	unacked  int
	free     uint64 // when the next READ response may leave
	ack      *timed // held back
	last     []byte // acknowledgement sent last

	// Messages that arrived, in order.
	Messages []Message
	// Accepted counts packets taken, Repeated those that were there already,
	// Early those behind a gap.
	Accepted, Repeated, Early int
	// Reads counts READ requests among the accepted.
	Reads int
	// Err is what no requester may do, nil if it did not.
	Err error
}

// New returns a peer that expects the first packet.
func New(cfg Config, seed uint64) *Peer {
	return &Peer{cfg: cfg, rng: rand.New(rand.NewPCG(seed, 0x5eed)), expected: cfg.StartPSN}
}

func (p *Peer) chance(f float64) bool { return f > 0 && p.rng.Float64() < f }

// Expected is the PSN that the peer waits for.
func (p *Peer) Expected() roce.PSN { return p.expected }

// SetFaults changes the link's and the peer's faults.
func (p *Peer) SetFaults(f Faults) { p.cfg.Faults = f }

// link puts a frame on its way.
func (p *Peer) link(queue *[]timed, at uint64, frame []byte) {
	if p.chance(p.cfg.Drop) {
		return
	}
	copies := 1
	if p.chance(p.cfg.Duplicate) {
		copies = 2
	}
	for range copies {
		f := slices.Clone(frame)
		if p.chance(p.cfg.Corrupt) {
			f[p.rng.IntN(len(f))] ^= 1 << p.rng.IntN(8)
		}
		when := at + p.cfg.Delay
		if p.chance(p.cfg.Reorder) {
			when += uint64(p.rng.IntN(400))
		}
		*queue = append(*queue, timed{when, f})
	}
}

// Send takes a frame that left the near end at a time.
func (p *Peer) Send(at uint64, frame []byte) { p.link(&p.in, at, frame) }

// Answers lets time pass and returns what arrives at the near end by now.
func (p *Peer) Answers(now uint64) (frames [][]byte) {
	for {
		i := earliest(p.in)
		if i < 0 || p.in[i].at > now {
			break
		}
		t := p.in[i]
		p.in = slices.Delete(p.in, i, i+1)
		p.receive(t.at, t.frame)
	}
	if p.ack != nil && p.ack.at <= now {
		p.send(p.ack.at, p.ack.frame)
		p.ack = nil
	}
	for {
		i := earliest(p.out)
		if i < 0 || p.out[i].at > now {
			return frames
		}
		frames = append(frames, p.out[i].frame)
		p.out = slices.Delete(p.out, i, i+1)
	}
}

func earliest(q []timed) int {
	best := -1
	for i := range q {
		if best < 0 || q[i].at < q[best].at {
			best = i
		}
	}
	return best
}

func (p *Peer) send(at uint64, frame []byte) {
	p.last = frame
	p.link(&p.out, at, frame)
}

// answer builds a response to a request.
func (p *Peer) answer(request *roce.Frame, psn roce.PSN, s roce.Syndrome) []byte {
	f := roce.Frame{Dst: request.Src, Src: request.Dst, TTL: 64}
	f.Flow = roce.Flow{Src: request.Flow.Dst, Dst: request.Flow.Src, SrcPort: request.Flow.SrcPort}
	f.Packet.BTH = roce.BTH{Opcode: roce.Acknowledge, MigReq: true, PKey: roce.PKeyDefault, DestQP: p.cfg.RemoteQPN, PSN: psn}
	f.Packet.AETH = roce.AETH{Syndrome: s, MSN: p.msn}
	b := make([]byte, f.Len())
	if _, err := f.Put(b); err != nil {
		panic(err)
	}
	return b
}

func (p *Peer) fail(format string, args ...any) {
	if p.Err == nil {
		p.Err = fmt.Errorf(format, args...)
	}
}

// receive is the responder.
func (p *Peer) receive(now uint64, b []byte) {
	var f roce.Frame
	err := f.Decode(b)
	if err != nil || !f.ICRCOK(b) {
		if p.cfg.Corrupt == 0 {
			p.fail("frame of %d bytes: %v, ICRC right: %t", len(b), err, f.ICRCOK(b))
		}
		return
	}
	k := &f.Packet
	if k.DestQP != p.cfg.QPN || !k.Opcode.IsRequest() {
		p.fail("%v for QPN %#x", k.Opcode, k.DestQP)
		return
	}
	switch d := k.PSN.Sub(p.expected); {
	case d < 0:
		p.Repeated++
		if k.Opcode == roce.ReadRequest {
			p.read(now, &f) // again, with the memory as it is now
			return
		}
		p.send(now, p.answer(&f, p.expected.Add(-1), roce.ACK(roce.CreditsInvalid)))
		return
	case d > 0:
		p.Early++
		if !p.nakked {
			p.nakked = true
			p.flush()
			p.send(now, p.answer(&f, p.expected, roce.Nak(roce.PSNSequenceError)))
		}
		return
	}
	if k.Opcode.Starts() && (k.Opcode.IsSend() || k.Opcode.HasImm()) {
		if !p.chosen {
			p.chosen, p.busy, p.refused = true, p.chance(p.cfg.RNR), 0
		}
		if p.busy && p.refused < p.cfg.RNRTimes {
			p.refused++
			p.nakked = true
			p.flush()
			p.send(now, p.answer(&f, p.expected, roce.RNRNak(p.cfg.RNRCode)))
			return
		}
	}
	p.accept(now, &f)
}

// flush sends an acknowledgement that was held back.
func (p *Peer) flush() {
	if p.ack != nil {
		p.send(p.ack.at, p.ack.frame)
		p.ack = nil
	}
}

// read sends the responses of a READ.
func (p *Peer) read(now uint64, f *roce.Frame) {
	k := &f.Packet
	var data []byte
	if p.cfg.Read != nil {
		data = p.cfg.Read(k.RETH.Address, k.RETH.RKey, k.RETH.Length)
	}
	if len(data) != int(k.RETH.Length) || data == nil {
		p.send(now, p.answer(f, k.PSN, roce.Nak(roce.RemoteAccess)))
		return
	}
	count := p.cfg.MTU.Packets(len(data))
	for i := range count {
		op := roce.ReadResponseMiddle
		switch {
		case count == 1:
			op = roce.ReadResponseOnly
		case i == 0:
			op = roce.ReadResponseFirst
		case i == count-1:
			op = roce.ReadResponseLast
		}
		n := min(len(data), int(p.cfg.MTU))
		at := max(now, p.free)
		p.free = at + p.cfg.ReadGap
		p.link(&p.out, at, p.Response(f, op, k.PSN.Add(i), roce.ACK(roce.CreditsInvalid), data[:n]))
		data = data[n:]
	}
}

// Response builds a READ response, whatever is right or wrong with it.
func (p *Peer) Response(request *roce.Frame, op roce.Opcode, psn roce.PSN, s roce.Syndrome, data []byte) []byte {
	f := roce.Frame{Dst: request.Src, Src: request.Dst, TTL: 64}
	f.Flow = roce.Flow{Src: request.Flow.Dst, Dst: request.Flow.Src, SrcPort: request.Flow.SrcPort}
	f.Packet.BTH = roce.BTH{Opcode: op, MigReq: true, PKey: roce.PKeyDefault, DestQP: p.cfg.RemoteQPN, PSN: psn}
	f.Packet.AETH = roce.AETH{Syndrome: s, MSN: p.msn}
	f.Packet.Payload = data
	b := make([]byte, f.Len())
	if _, err := f.Put(b); err != nil {
		panic(err)
	}
	return b
}

func (p *Peer) accept(now uint64, f *roce.Frame) {
	k := &f.Packet
	p.chosen, p.nakked = false, false
	p.Accepted++
	if k.Opcode == roce.ReadRequest {
		p.msn = (p.msn + 1) & roce.MSNMask
		p.Reads++
		p.flush()
		p.expected = p.expected.Add(p.cfg.MTU.Packets(int(k.RETH.Length)))
		p.read(now, f)
		return
	}
	p.expected = p.expected.Add(1)
	op := k.Opcode
	if op.Starts() {
		if p.current != nil {
			p.fail("%v inside a message", op)
		}
		p.current = &Message{Address: k.RETH.Address, RKey: k.RETH.RKey}
	} else if p.current == nil {
		p.fail("%v outside a message", op)
		return
	}
	m := p.current
	if !op.Ends() && len(k.Payload) != int(p.cfg.MTU) || len(k.Payload) > int(p.cfg.MTU) {
		p.fail("%v with %d bytes at MTU %d", op, len(k.Payload), p.cfg.MTU)
	}
	m.Data = append(m.Data, k.Payload...)
	if op.Starts() && op.HasRETH() {
		m.Data = slices.Grow(m.Data, int(k.RETH.Length))
		m.Imm = k.RETH.Length // checked below, overwritten by immediate data
	}
	if op.Ends() {
		if op.IsWrite() && int(m.Imm) != len(m.Data) {
			p.fail("WRITE of %d bytes announced, %d came", m.Imm, len(m.Data))
		}
		m.Op, m.Imm, m.Solicited = op, k.Imm, k.SolicitedEvent
		p.Messages = append(p.Messages, *m)
		p.current = nil
		p.msn = (p.msn + 1) & roce.MSNMask
	}
	p.unacked++
	if k.AckReq || p.cfg.AckEvery > 0 && p.unacked >= p.cfg.AckEvery {
		p.unacked = 0
		ack := p.answer(f, p.expected.Add(-1), roce.ACK(roce.CreditsInvalid))
		if p.cfg.AckDelay == 0 {
			p.send(now, ack)
		} else if p.ack == nil {
			p.ack = &timed{now + p.cfg.AckDelay, ack}
		} else {
			p.ack.frame = ack // one for both
		}
	}
	if p.last != nil && p.chance(p.cfg.Stale) {
		p.link(&p.out, now, p.last)
	}
}
