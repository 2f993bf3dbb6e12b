package soft

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

var mtus = []roce.MTU{256, 1024, 4096}

func sizes(m roce.MTU) []int {
	n := int(m)
	return []int{0, 1, n - 1, n, n + 1, 2 * n, 8192, 8193, 1 << 20}
}

func TestMessages(t *testing.T) {
	for _, mtu := range mtus {
		for _, only := range []roce.Opcode{roce.SendOnly, roce.SendOnlyImm, roce.WriteOnly, roce.WriteOnlyImm} {
			t.Run(fmt.Sprintf("%v/%d", only, mtu), func(t *testing.T) {
				const guard = 64
				g := newRig(t, options{mtu: mtu, memory: 1<<20 + 2*guard, psn: 0xfffff0})
				b := g.memory.Bytes()
				for i, n := range sizes(mtu) {
					blank := bytes.Repeat([]byte{0xa5}, len(b))
					copy(b, blank)
					data := pattern(n, i)
					reth := roce.RETH{Address: g.mr.base + guard, RKey: g.mr.rkey, Length: uint32(n)}
					imm := 0x01020304 + uint32(i)
					id := uint64(7000 + i)
					if _, err := g.qp.PostReceive([]verbs.ReceiveRequest{
						{ID: id, Address: g.mr.base + guard, Length: uint32(n), LKey: g.mr.lkey}}); only != roce.WriteOnly && err != nil {
						t.Fatal(err)
					}
					ps := g.message(only, data, reth, imm)
					if len(ps) != mtu.Packets(n) {
						t.Fatalf("%d packets", len(ps))
					}
					g.acks(g.exchange(ps...), g.psn.Add(-1), uint32(i+1))

					copy(blank[guard:], data)
					if !bytes.Equal(b, blank) {
						t.Fatalf("%d bytes: memory differs from %d on", n, firstDifference(b, blank))
					}
					want := verbs.WorkCompletion{ID: id, ByteLen: uint32(n), QPN: uint32(g.qp.qpn)}
					switch only {
					case roce.SendOnly:
						want.Opcode = verbs.OpRecv
					case roce.SendOnlyImm:
						want.Opcode, want.Flags, want.Imm = verbs.OpRecv, verbs.WithImm, verbs.ImmediateOf(imm)
					case roce.WriteOnlyImm:
						want.Opcode, want.Flags, want.Imm = verbs.OpRecvRDMAWithImm, verbs.WithImm, verbs.ImmediateOf(imm)
					case roce.WriteOnly:
						if got := g.poll(); len(got) != 0 {
							t.Fatalf("%d bytes: a plain WRITE completed: %+v", n, got)
						}
						continue
					}
					if got := g.poll(); len(got) != 1 || got[0] != want {
						t.Fatalf("%d bytes: completions %+v, want %+v", n, got, want)
					}
				}
			})
		}
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// response checks READ responses to one request and returns their data.
func response(ps []roce.Packet, mtu roce.MTU, psn roce.PSN, n int, msn uint32) ([]byte, error) {
	var data []byte
	packets := mtu.Packets(n)
	if len(ps) != packets {
		return nil, fmt.Errorf("%d response packets, want %d", len(ps), packets)
	}
	for i, p := range ps {
		if want := roce.ReadResponseOnly.InMessage(i == 0, i == packets-1); p.Opcode != want {
			return nil, fmt.Errorf("packet %d is %v, want %v", i, p.Opcode, want)
		}
		if want := psn.Add(i); p.PSN != want {
			return nil, fmt.Errorf("packet %d has PSN %#x, want %#x", i, p.PSN, want)
		}
		if i < packets-1 && len(p.Payload) != int(mtu) {
			return nil, fmt.Errorf("packet %d has %d bytes", i, len(p.Payload))
		}
		if p.Opcode.HasAETH() && (!p.AETH.Syndrome.IsACK() || p.AETH.MSN != msn) {
			return nil, fmt.Errorf("packet %d: %v, MSN %d, want %d", i, p.AETH.Syndrome, p.AETH.MSN, msn)
		}
		data = append(data, p.Payload...)
	}
	if len(data) != n {
		return nil, fmt.Errorf("%d bytes, want %d", len(data), n)
	}
	return data, nil
}

func TestRead(t *testing.T) {
	for _, mtu := range mtus {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			const at = 40
			g := newRig(t, options{mtu: mtu, memory: 1<<20 + 2*at, psn: 0xfffff0})
			copy(g.memory.Bytes(), pattern(len(g.memory.Bytes()), 9))
			total := 0
			for i, n := range sizes(mtu) {
				psn := g.psn
				answers := g.exchange(g.read(g.mr.base+at, g.mr.rkey, n))
				data, err := response(answers, mtu, psn, n, uint32(i+1))
				if err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				if !bytes.Equal(data, g.memory.Bytes()[at:at+n]) {
					t.Fatalf("%d bytes: wrong data", n)
				}
				total += n
			}
			g.count(map[string]uint64{"read_requests": uint64(len(sizes(mtu))), "read_bytes": uint64(total)})
			if got := g.poll(); len(got) != 0 {
				t.Errorf("a READ completed: %+v", got)
			}
		})
	}
}

// A zero-length WRITE or READ needs no valid key or address (IBTA 9.7.4.1.5).
func TestZeroLengthNeedsNoKey(t *testing.T) {
	g := newRig(t, options{})
	g.acks(g.exchange(g.message(roce.WriteOnly, nil, roce.RETH{Address: 1, RKey: g.mr.rkey + 1}, 0)...), 0, 1)
	if _, err := response(g.exchange(g.read(1, g.mr.rkey+1, 0)), g.o.mtu, 1, 0, 2); err != nil {
		t.Error(err)
	}
	if g.qp.State() != verbs.ReadyToSend {
		t.Errorf("state %v", g.qp.State())
	}
}

func TestOneAcknowledgeCoversABatch(t *testing.T) {
	g := newRig(t, options{receives: 64})
	g.post(64, 64, 64)
	var ps []roce.Packet
	for range 64 {
		ps = append(ps, g.message(roce.SendOnly, []byte("x"), roce.RETH{}, 0)...)
	}
	answers := g.exchange(ps...)
	g.acks(answers, 63, 64)
	if n := g.d.Counters()["acks_sent"]; n != uint64(len(answers)) || n > 32 {
		t.Errorf("%d ACKs counted, %d came, for 64 messages sent at once", n, len(answers))
	}
	if got := g.poll(); len(got) != 64 {
		t.Errorf("%d completions", len(got))
	}
}

// The peer may choose any source port, and change it.
func TestSourcePortIsFree(t *testing.T) {
	g := newRig(t, options{})
	g.post(1, 64, 64)
	c := otherPort(t, g)
	p := g.message(roce.SendOnly, []byte("x"), roce.RETH{}, 0)[0]
	p.MigReq = false
	g.flow = c.FlowTo(g.to)
	q := c.NewSendQueue(0)
	q.Add(g.to, g.encode(p))
	if n, err := c.Send(q); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	g.total.Add(1)
	g.settle()
	g.acks(g.answers(), 0, 1)
}

func TestDuplicates(t *testing.T) {
	g := newRig(t, options{mtu: 256})
	g.post(4, 1024, 1024)
	b := g.memory.Bytes()
	send := g.message(roce.SendOnlyImm, pattern(600, 1), roce.RETH{}, 5)
	write := g.message(roce.WriteOnly, pattern(600, 2), roce.RETH{Address: g.mr.base + 8192, RKey: g.mr.rkey, Length: 600}, 0)
	writeImm := g.message(roce.WriteOnlyImm, pattern(600, 3), roce.RETH{Address: g.mr.base + 16384, RKey: g.mr.rkey, Length: 600}, 6)
	all := slices.Concat(send, write, writeImm)
	g.acks(g.exchange(all...), 8, 3)
	if got := g.poll(); len(got) != 2 {
		t.Fatalf("completions %+v", got)
	}
	clear(b)
	g.acks(g.exchange(all...), 8, 3)
	g.acks(g.exchange(send[1]), 8, 3)
	if got := g.poll(); len(got) != 0 {
		t.Errorf("duplicates completed: %+v", got)
	}
	if !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("duplicates were placed again")
	}
	g.count(map[string]uint64{"duplicate_request": 10, "send_messages": 1, "write_requests": 2, "out_of_sequence": 0})
}

func TestDuplicateRead(t *testing.T) {
	g := newRig(t, options{mtu: 256, psn: 0xfffffd})
	b := g.memory.Bytes()
	copy(b, pattern(len(b), 1))
	first, second := g.read(g.mr.base, g.mr.rkey, 1500), g.read(g.mr.base+2000, g.mr.rkey, 100)
	g.exchange(first, second)

	copy(b, pattern(len(b), 2)) // executed again, not remembered
	answers := g.exchange(first, second)
	for i, want := range [][]byte{b[:1500], b[2000:2100]} {
		psn, n := []roce.PSN{0xfffffd, 3}[i], g.o.mtu.Packets(len(want))
		data, err := response(answers[:n], g.o.mtu, psn, len(want), 2)
		if err != nil || !bytes.Equal(data, want) {
			t.Fatalf("READ %d again: %v", i, err)
		}
		answers = answers[n:]
	}
	// From the middle: the requester lost the third response.
	part := first
	part.PSN = part.PSN.Add(2)
	part.RETH.Address += 512
	part.RETH.Length -= 512
	data, err := response(g.exchange(part), g.o.mtu, part.PSN, 1500-512, 2)
	if err != nil || !bytes.Equal(data, b[512:1500]) {
		t.Fatalf("rest of a READ: %v", err)
	}
	// One that reaches beyond what was asked for, and one that is not permitted.
	long, bad := second, second
	long.RETH.Length = 300
	bad.RETH.RKey++
	g.none(g.exchange(long, bad))
	if g.qp.State() != verbs.ReadyToSend {
		t.Errorf("state %v", g.qp.State())
	}
	g.count(map[string]uint64{"duplicate_request": 5, "read_requests": 5})
}

// The requester asks again from the middle of a READ that is being answered,
// and for the one after it: the old answers stop, the new ones are whole.
func TestReadAgainWhileItIsAnswered(t *testing.T) {
	const mtu, n = 4096, 2 * readShare
	g := newRig(t, options{mtu: mtu, memory: n})
	copy(g.memory.Bytes(), pattern(n, 1))
	r := halt(g)
	from := netip.AddrPortFrom(g.flow.Src, g.flow.SrcPort)
	round := func(ps ...roce.Packet) ([]roce.Packet, bool) {
		for _, p := range ps {
			r.handle(g.encode(p), from)
		}
		more := r.answers()
		r.transmit()
		return g.answers(), more
	}
	first, second := g.read(g.mr.base, g.mr.rkey, n), g.read(g.mr.base+8, g.mr.rkey, 8)
	got, more := round(first, second)
	if len(got) != readShare/mtu || !more {
		t.Fatalf("%d responses in a round, more: %v", len(got), more)
	}
	part := first
	part.PSN = 3
	part.RETH.Address += 3 * mtu
	part.RETH.Length -= 3 * mtu
	got, more = round(part, second)
	for more {
		var next []roce.Packet
		next, more = round()
		got = append(got, next...)
	}
	packets := n/mtu - 3
	if len(got) != packets+1 {
		t.Fatalf("%d responses, want %d and 1", len(got), packets)
	}
	data, err := response(got[:packets], mtu, 3, n-3*mtu, 2)
	if err != nil || !bytes.Equal(data, g.memory.Bytes()[3*mtu:]) {
		t.Errorf("the first: %v", err)
	}
	data, err = response(got[packets:], mtu, n/mtu, 8, 2)
	if err != nil || !bytes.Equal(data, g.memory.Bytes()[8:16]) {
		t.Errorf("the second: %v", err)
	}
}

func TestGapIsAnsweredOnce(t *testing.T) {
	g := newRig(t, options{})
	g.post(8, 64, 64)
	var ps []roce.Packet
	for i := range 6 {
		ps = append(ps, g.message(roce.SendOnly, []byte{byte(i)}, roce.RETH{}, 0)...)
	}
	nak := roce.Nak(roce.PSNSequenceError)
	g.acks(g.exchange(ps[0]), 0, 1)
	g.one(g.exchange(ps[2], ps[3]), nak, 1)
	g.none(g.exchange(ps[4]))
	// The rest comes again, with another gap.
	g.acks(g.exchange(ps[1]), 1, 2)
	g.one(g.exchange(ps[3]), nak, 2)
	g.acks(g.exchange(ps[2:]...), 5, 6)
	got := g.poll()
	for i, wc := range got {
		if wc.ID != uint64(100+i) || g.memory.Bytes()[i*64] != byte(i) {
			t.Errorf("message %d: %+v", i, wc)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d completions", len(got))
	}
	g.count(map[string]uint64{"out_of_sequence": 4, "sequence_nak_sent": 2, "dropped_after_nak": 2, "duplicate_request": 0})
}

// A gap that closes within one batch is still told, because what came after the
// gap is lost.
func TestGapWithinABatch(t *testing.T) {
	g := newRig(t, options{})
	g.post(4, 64, 64)
	var ps []roce.Packet
	for range 3 {
		ps = append(ps, g.message(roce.SendOnly, nil, roce.RETH{}, 0)...)
	}
	answers := g.exchange(ps[1], ps[0])
	if len(answers) != 2 {
		t.Fatalf("%d answers", len(answers))
	}
	g.one(answers[:1], roce.Nak(roce.PSNSequenceError), 0)
	g.acks(answers[1:], 0, 1)
}

func TestReceiverNotReady(t *testing.T) {
	rnr := roce.RNRNak(12)
	t.Run("SEND", func(t *testing.T) {
		g := newRig(t, options{mtu: 256})
		ps := g.message(roce.SendOnly, pattern(700, 1), roce.RETH{}, 0)
		g.one(g.exchange(ps...), rnr, 0) // what follows is dropped in silence
		g.one(g.exchange(ps[0]), rnr, 0)
		g.post(1, 0, 700)
		g.acks(g.exchange(ps...), 2, 1)
		if got := g.poll(); len(got) != 1 || got[0].ByteLen != 700 || !bytes.Equal(g.memory.Bytes()[:700], pattern(700, 1)) {
			t.Errorf("completions %+v", got)
		}
		g.count(map[string]uint64{"rnr_nak_sent": 2, "sequence_nak_sent": 0, "duplicate_request": 0})
	})
	t.Run("WRITE_IMM", func(t *testing.T) {
		g := newRig(t, options{mtu: 256})
		data := pattern(700, 1)
		ps := g.message(roce.WriteOnlyImm, data, roce.RETH{Address: g.mr.base, RKey: g.mr.rkey, Length: 700}, 8)
		answers := g.exchange(ps...)
		g.one(answers[len(answers)-1:], rnr, 2)
		if b := g.memory.Bytes(); !bytes.Equal(b[:512], data[:512]) || !bytes.Equal(b[512:700], make([]byte, 188)) {
			t.Error("want the data of the packets before the last one, and no more")
		}
		g.one(g.exchange(ps[2]), rnr, 2)
		g.post(1, 0, 0)
		g.acks(g.exchange(ps[2]), 2, 1)
		if got := g.poll(); len(got) != 1 || got[0].ByteLen != 700 || got[0].Imm.Uint32() != 8 || !bytes.Equal(g.memory.Bytes()[:700], data) {
			t.Errorf("completions %+v", got)
		}
	})
	t.Run("WRITE_ONLY_IMM", func(t *testing.T) {
		g := newRig(t, options{mtu: 256})
		ps := g.message(roce.WriteOnlyImm, pattern(200, 1), roce.RETH{Address: g.mr.base, RKey: g.mr.rkey, Length: 200}, 8)
		g.one(g.exchange(ps...), rnr, 0)
		if !bytes.Equal(g.memory.Bytes()[:200], make([]byte, 200)) {
			t.Error("data was placed")
		}
		g.post(1, 0, 0)
		g.acks(g.exchange(ps...), 0, 1)
	})
}

// What comes after a READ is acknowledged after its last response.
func TestAnswersKeepTheOrderOfPSNs(t *testing.T) {
	const n = 3 * readShare
	g := newRig(t, options{mtu: 4096, memory: n})
	g.post(2, 64, 64)
	before := g.message(roce.SendOnly, nil, roce.RETH{}, 0)[0]
	read := g.read(g.mr.base, g.mr.rkey, n)
	after := g.message(roce.SendOnly, nil, roce.RETH{}, 0)[0]
	bad := g.packet(roce.SendMiddle, g.psn, make([]byte, 4096))
	answers := g.exchange(before, read, after, bad)
	for answers[0].Opcode == roce.Acknowledge {
		answers = answers[1:]
	}
	packets := g.o.mtu.Packets(n)
	if _, err := response(answers[:packets], g.o.mtu, 1, n, 2); err != nil {
		t.Fatal(err)
	}
	rest := answers[packets:]
	g.one(rest[len(rest)-1:], roce.Nak(roce.InvalidRequest), bad.PSN)
	if g.qp.State() != verbs.Error {
		t.Errorf("state %v", g.qp.State())
	}
	if got := g.poll(); len(got) != 2 {
		t.Errorf("completions %+v", got)
	}
}

func TestReadsBeyondTheLimit(t *testing.T) {
	g := newRig(t, options{mtu: 256, maxReads: 2, memory: 4 << 20})
	// Long enough that none ends before all have been looked at.
	const n = 1 << 20
	answers := g.exchange(g.read(g.mr.base, g.mr.rkey, n), g.read(g.mr.base, g.mr.rkey, n), g.read(g.mr.base, g.mr.rkey, n))
	last := answers[len(answers)-1]
	if last.AETH.Syndrome != roce.Nak(roce.InvalidRequest) || g.qp.State() != verbs.Error {
		t.Errorf("last answer %v, state %v", last.AETH.Syndrome, g.qp.State())
	}
	g.count(map[string]uint64{"read_requests": 2, "invalid_request": 1})
}

func TestPSNWraps(t *testing.T) {
	g := newRig(t, options{mtu: 256, psn: 0xfffffe, receives: 8})
	g.post(8, 1024, 1024)
	ps := g.message(roce.SendOnly, pattern(1000, 1), roce.RETH{}, 0)
	g.acks(g.exchange(ps...), 1, 1)
	g.acks(g.exchange(ps[1]), 1, 1) // old
	next := g.message(roce.SendOnly, nil, roce.RETH{}, 0)
	after := g.message(roce.SendOnly, nil, roce.RETH{}, 0)
	g.one(g.exchange(after...), roce.Nak(roce.PSNSequenceError), 2)
	g.acks(g.exchange(append(next, after...)...), 3, 3)
	g.count(map[string]uint64{"duplicate_request": 1, "out_of_sequence": 1})
}

// Two queue pairs of one device do not get in each other's way.
func TestQueuePairsAreIndependent(t *testing.T) {
	a := newRig(t, options{})
	b := newRig(t, options{device: a.d, psn: 99})
	b.total = a.total
	a.post(1, 64, 64)
	a.acks(a.exchange(a.message(roce.SendOnly, []byte("a"), roce.RETH{}, 0)...), 0, 1)
	b.one(b.exchange(b.message(roce.SendOnly, []byte("b"), roce.RETH{}, 0)...), roce.RNRNak(12), 99)
	// b's region is of another domain: a may not reach it.
	a.one(a.exchange(a.message(roce.WriteOnly, []byte("w"), roce.RETH{Address: b.mr.base, RKey: b.mr.rkey, Length: 1}, 0)...),
		roce.Nak(roce.RemoteAccess), 1)
	if a.qp.State() != verbs.Error || b.qp.State() != verbs.ReadyToSend {
		t.Errorf("states %v and %v", a.qp.State(), b.qp.State())
	}
	if b.memory.Bytes()[0] != 0 {
		t.Error("memory of another domain was written")
	}
}
