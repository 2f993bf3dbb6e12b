package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"rocelink/fpga/pattern"
	"rocelink/fpga/roce"
)

// message verbs as the host sees them.
type arrived struct {
	op   roce.Opcode // of the last packet
	data []byte      // of SEND
	imm  uint32
	n    int // bytes of the message
	addr uint64
}

// host is a responder with one queue pair per local QPN: what a NIC and its
// memory do, by the rules of IBTA chapter 9, and stricter about the requester
// than a NIC would be.
type host struct {
	addr netip.Addr
	mac  roce.MAC
	qps  map[roce.QPN]*hostQP
}

// hostQP is a responder's queue pair.
type hostQP struct {
	qpn, peer roce.QPN
	mtu       int
	expected  roce.PSN
	msn       uint32
	nakked    bool
	first     bool // the next packet begins a message

	base uint64
	rkey uint32
	mem  []byte

	building arrived
	got      func(arrived) error
	wrote    func(addr uint64, n int) error

	// Misbehaviour: probability that a receive is missing.
	notReady float64
	rnrCode  uint8
	rand     *rand.Rand
	refuse   roce.Syndrome // if not 0, what every request is answered with
	mute     bool
	tamper   func([]roce.Packet) // with READ responses
	ackEvery int                 // acknowledges only every so many requests for it; 0: each
	asked    int

	requests, duplicates, rnrs, naks int
	sizes                            map[int]int // packets by payload length
	err                              error
}

func (h *host) add(qpn, peer roce.QPN, mtu roce.MTU, psn roce.PSN) *hostQP {
	q := &hostQP{qpn: qpn, peer: peer, mtu: int(mtu), expected: psn, first: true, rnrCode: 1,
		rand: rand.New(rand.NewPCG(uint64(qpn), 7)), sizes: map[int]int{}}
	h.qps[qpn] = q
	return q
}

// handle takes a datagram and returns the packets that answer it.
func (h *host) handle(d Datagram) []roce.Packet {
	flow := roce.Flow{Src: d.Src.Addr(), Dst: d.Dst.Addr(), SrcPort: d.Src.Port()}
	if !flow.Check(d.Payload) {
		return nil
	}
	var p roce.Packet
	if err := p.Decode(d.Payload); err != nil {
		panic(fmt.Sprintf("the fabric sent %x: %v", d.Payload, err))
	}
	q := h.qps[p.DestQP]
	if q == nil || q.mute {
		return nil
	}
	return q.request(&p)
}

func (q *hostQP) fail(format string, args ...any) {
	if q.err == nil {
		q.err = fmt.Errorf("QPN %d: "+format, append([]any{q.qpn}, args...)...)
	}
}

func (q *hostQP) answer(psn roce.PSN, s roce.Syndrome) []roce.Packet {
	return []roce.Packet{{
		BTH:  roce.BTH{Opcode: roce.Acknowledge, MigReq: true, PKey: 0xFFFF, DestQP: q.peer, PSN: psn},
		AETH: roce.AETH{Syndrome: s, MSN: q.msn},
	}}
}

func (q *hostQP) ack(psn roce.PSN) []roce.Packet { return q.answer(psn, roce.ACK(31)) }

func (q *hostQP) request(p *roce.Packet) []roce.Packet {
	q.requests++
	if q.refuse != 0 {
		return q.answer(p.PSN, q.refuse)
	}
	switch d := p.PSN.Sub(q.expected); {
	case d > 0:
		if q.nakked {
			return nil
		}
		q.nakked = true
		q.naks++
		return q.answer(q.expected, roce.Nak(roce.PSNSequenceError))
	case d < 0:
		q.duplicates++
		if p.Opcode == roce.ReadRequest {
			return q.read(p)
		}
		if p.AckReq {
			return q.ack(q.expected.Add(-1))
		}
		return nil
	}
	op := p.Opcode
	if op.Starts() != (q.first && op != roce.ReadRequest) && op != roce.ReadRequest {
		q.fail("PSN %#x: %v, first %v", p.PSN, op, q.first)
	}
	if (op.IsSend() && op.Starts() || op.IsWrite() && op.HasImm()) && q.notReady > 0 && q.rand.Float64() < q.notReady {
		q.rnrs++
		q.nakked = true // what follows is dropped without a word
		return q.answer(p.PSN, roce.RNRNak(q.rnrCode))
	}
	q.nakked = false
	if op == roce.ReadRequest {
		q.expected = q.expected.Add(roce.MTU(q.mtu).Packets(int(p.RETH.Length)))
		q.msn = (q.msn + 1) & roce.MSNMask
		return q.read(p)
	}
	q.sizes[len(p.Payload)]++
	if n := len(p.Payload); (op.IsFirst() || op.IsMiddle()) && n != q.mtu || n > q.mtu {
		q.fail("%v with %d bytes at MTU %d", op, n, q.mtu)
	}
	if op.Starts() {
		q.building = arrived{addr: p.RETH.Address}
	}
	b := &q.building
	if op.IsSend() {
		b.data = append(b.data, p.Payload...)
	} else {
		if op.HasRETH() {
			if p.RETH.RKey != q.rkey {
				return q.answer(p.PSN, roce.Nak(roce.RemoteAccess))
			}
			if op.IsOnly() && int(p.RETH.Length) != len(p.Payload) {
				q.fail("WRITE of %d bytes with %d", p.RETH.Length, len(p.Payload))
			}
		}
		if !q.inside(b.addr+uint64(b.n), len(p.Payload)) {
			return q.answer(p.PSN, roce.Nak(roce.RemoteAccess))
		}
		copy(q.mem[b.addr+uint64(b.n)-q.base:], p.Payload)
	}
	b.n += len(p.Payload)
	q.expected = q.expected.Next()
	q.first = op.Ends()
	if op.Ends() {
		q.msn = (q.msn + 1) & roce.MSNMask
		b.op, b.imm = op, p.Imm
		var err error
		if op.IsWrite() && !op.HasImm() {
			if q.wrote != nil {
				err = q.wrote(b.addr, b.n)
			}
		} else if q.got != nil {
			err = q.got(*b)
		}
		if err != nil {
			q.fail("%w", err)
		}
		b.data = b.data[:0]
	}
	if p.AckReq {
		q.asked++
		if q.ackEvery == 0 || q.asked%q.ackEvery == 0 {
			return q.ack(p.PSN)
		}
	}
	return nil
}

func (q *hostQP) inside(addr uint64, n int) bool {
	return addr >= q.base && addr-q.base <= uint64(len(q.mem)) && uint64(n) <= uint64(len(q.mem))-(addr-q.base)
}

func (q *hostQP) read(p *roce.Packet) []roce.Packet {
	if p.RETH.RKey != q.rkey || !q.inside(p.RETH.Address, int(p.RETH.Length)) {
		return q.answer(p.PSN, roce.Nak(roce.RemoteAccess))
	}
	data := q.mem[p.RETH.Address-q.base:][:p.RETH.Length]
	n := roce.MTU(q.mtu).Packets(len(data))
	var out []roce.Packet
	for i := range n {
		piece := data[i*q.mtu : min(len(data), (i+1)*q.mtu)]
		out = append(out, roce.Packet{
			BTH: roce.BTH{Opcode: roce.ReadResponseOnly.InMessage(i == 0, i == n-1), MigReq: true, PKey: 0xFFFF,
				DestQP: q.peer, PSN: p.PSN.Add(i)},
			AETH:    roce.AETH{Syndrome: roce.ACK(31), MSN: q.msn},
			Payload: bytes.Clone(piece),
		})
	}
	if q.tamper != nil {
		q.tamper(out)
	}
	return out
}

// expectFrames returns a function for hostQP.got that wants frame after frame
// of the generator, each once.
func expectFrames(k pattern.Kind, size int, crc, imm bool) func(arrived) error {
	var seq uint64
	want := make([]byte, size)
	return func(a arrived) error {
		pattern.Fill(want, k, seq)
		if crc {
			if err := pattern.SealCRC(want); err != nil {
				return err
			}
		}
		if !bytes.Equal(a.data, want) {
			return fmt.Errorf("message %d of %d bytes is not the frame of %d", seq, len(a.data), size)
		}
		if a.op.HasImm() != imm || imm && a.imm != uint32(seq) {
			return fmt.Errorf("message %d: %v with immediate %d", seq, a.op, a.imm)
		}
		seq++
		return nil
	}
}

// slots watches a ring of slots as the agent does for verbs Write and WriteImm.
type slots struct {
	q       *hostQP
	kind    pattern.Kind
	crc     bool
	size    int
	slots   int
	stride  int
	trailer bool
	next    uint64 // sequence of the next frame
}

func (s *slots) check() error {
	at := int(s.next%uint64(s.slots)) * s.stride
	want := make([]byte, s.size)
	pattern.Fill(want, s.kind, s.next)
	if s.crc {
		if err := pattern.SealCRC(want); err != nil {
			return err
		}
	}
	if !bytes.Equal(s.q.mem[at:at+s.size], want) {
		return fmt.Errorf("slot of frame %d does not hold it", s.next)
	}
	if s.trailer {
		t := s.q.mem[at+s.stride-trailerBytes:]
		n, zero, seq := binary.LittleEndian.Uint32(t), binary.LittleEndian.Uint32(t[4:]), binary.LittleEndian.Uint64(t[8:])
		if int(n) != s.size || zero != 0 || seq != s.next+1 {
			return fmt.Errorf("trailer of frame %d: %d bytes, %d, sequence %d", s.next, n, zero, seq)
		}
	}
	s.next++
	return nil
}

// wrote is for hostQP.wrote.
func (s *slots) wrote(addr uint64, n int) error {
	off := int(addr - s.q.base)
	at := int(s.next%uint64(s.slots)) * s.stride
	switch {
	case !s.trailer:
		return fmt.Errorf("a plain WRITE to offset %d", off)
	case off == at && n == s.size:
		return nil // the frame; zero-length ones as well
	case off == at+s.stride-trailerBytes && n == trailerBytes:
		return s.check()
	}
	return fmt.Errorf("frame %d: WRITE of %d bytes to offset %d", s.next, n, off)
}

// got is for hostQP.got.
func (s *slots) got(a arrived) error {
	if a.imm != uint32(s.next) || !a.op.IsWrite() || int(a.addr-s.q.base) != int(s.next%uint64(s.slots))*s.stride {
		return fmt.Errorf("frame %d: %v to %#x, immediate %d", s.next, a.op, a.addr, a.imm)
	}
	return s.check()
}

// release keeps the Credit word behind the ring: a frame is released as soon as
// it was checked.
func (s *slots) release() {
	check := s.q.wrote
	s.q.wrote = func(addr uint64, n int) error {
		err := check(addr, n)
		binary.LittleEndian.PutUint64(s.q.mem[s.slots*s.stride:], s.next)
		return err
	}
}
