package soft

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

// patient bounds what a test waits for.
const patient = 10 * time.Second

var nextAddress atomic.Uint32

func init() { nextAddress.Store(uint32(os.Getpid()) * 64) }

// address returns a loopback address that nothing else in these tests uses.
func address() netip.Addr {
	n := nextAddress.Add(1)
	return netip.AddrFrom4([4]byte{127, 42, byte(n >> 8), byte(n)})
}

// openAny opens a device on an address of its own.
func openAny(t testing.TB) *device {
	t.Helper()
	for range 64 {
		d, err := New().Open(address().String())
		if errors.Is(err, verbs.ErrBusy) {
			continue // another run of these tests
		}
		if err != nil {
			t.Fatal(err)
		}
		return d.(*device)
	}
	t.Fatal("no free address")
	return nil
}

// options of a rig; zero fields have the defaults of newRig.
type options struct {
	device   *device // nil: one of its own
	mtu      roce.MTU
	psn      roce.PSN
	memory   int
	region   verbs.Access
	access   verbs.Access
	receives int
	depth    int
	maxReads int
	local    netip.Addr // of the requester
	shared   int        // receives of a shared receive queue; 0: none
	with     *rig       // its device, domain, memory, completion queue and shared queue
}

const everything = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead

// rig is a queue pair in RTS and a requester for it, which sends what it is
// told and collects the answers.
type rig struct {
	t      testing.TB
	o      options
	d      *device
	pd     *domain
	memory *verbs.Memory
	mr     *region
	cq     *completionQueue
	qp     *queuePair
	srq    verbs.SharedReceiveQueue

	conn  *udp.Conn
	batch *udp.Batch
	queue *udp.SendQueue
	flow  roce.Flow
	to    netip.AddrPort
	psn   roce.PSN // of the next new packet
	total *atomic.Uint64
}

const peerQPN roce.QPN = 0xabcdef

func newRig(t testing.TB, o options) *rig {
	t.Helper()
	if o.mtu == 0 {
		o.mtu = 1024
	}
	if o.memory == 0 {
		o.memory = 64 << 10
	}
	if o.region == 0 {
		o.region = everything
	}
	if o.access == 0 {
		o.access = everything
	}
	if o.receives == 0 {
		o.receives = 16
	}
	if o.depth == 0 {
		o.depth = o.receives
	}
	if o.maxReads == 0 {
		o.maxReads = 4
	}
	g := &rig{t: t, o: o, psn: o.psn, total: new(atomic.Uint64)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if w := o.with; w != nil {
		o.device = w.d
		g.total = w.total
	}
	if g.d = o.device; g.d == nil {
		g.d = openAny(t)
		t.Cleanup(func() {
			if err := g.d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	var err error
	if w := o.with; w != nil {
		g.memory, g.pd, g.mr, g.cq, g.srq = w.memory, w.pd, w.mr, w.cq, w.srq
		g.connect(o)
		return g
	}
	g.memory, err = verbs.AllocMemory(o.memory, false)
	must(err)
	pd, err := g.d.AllocPD()
	must(err)
	g.pd = pd.(*domain)
	mr, err := pd.Register(g.memory, o.region)
	must(err)
	g.mr = mr.(*region)
	cq, err := g.d.CreateCQ(o.depth)
	must(err)
	g.cq = cq.(*completionQueue)
	if o.shared > 0 {
		g.srq, err = pd.CreateSRQ(o.shared)
		must(err)
	}
	t.Cleanup(func() {
		if g.srq != nil {
			must(g.srq.Close())
		}
		must(g.cq.Close())
		must(g.mr.Close())
		must(g.pd.Close())
		must(g.memory.Free())
	})
	g.connect(o)
	return g
}

// connect makes the queue pair and its requester.
func (g *rig) connect(o options) {
	t := g.t
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	qp, err := g.pd.CreateQP(verbs.QPConfig{SendCQ: g.cq, RecvCQ: g.cq, MaxReceives: o.receives, SRQ: g.srq})
	must(err)
	g.qp = qp.(*queuePair)
	t.Cleanup(func() { must(g.qp.Close()) })
	local := o.local
	for range 64 {
		if !o.local.IsValid() {
			local = address()
		}
		if g.conn, err = udp.Listen(netip.AddrPortFrom(local, roce.Port), udp.Config{}); err == nil {
			break
		}
	}
	must(err)
	t.Cleanup(func() { g.conn.Close() })
	g.batch, g.queue = g.conn.NewBatch(0), g.conn.NewSendQueue(0)
	g.to = netip.AddrPortFrom(g.d.address, roce.Port)
	g.flow = g.conn.FlowTo(g.to)
	must(qp.Init(o.access))
	must(qp.ReadyToReceive(verbs.PeerAttributes{QPN: peerQPN, PSN: o.psn, Address: local, MTU: o.mtu,
		MinRNRTimer: 12, MaxReads: o.maxReads}))
	must(qp.ReadyToSend(0x77))
}

// post posts n receives of length bytes at multiples of stride; IDs count on
// from 100.
func (g *rig) post(n, stride int, length uint32) {
	g.t.Helper()
	rs := make([]verbs.ReceiveRequest, n)
	for i := range rs {
		rs[i] = verbs.ReceiveRequest{ID: uint64(100 + i), Address: g.mr.base + uint64(i*stride), Length: length, LKey: g.mr.lkey}
	}
	if k, err := g.qp.PostReceive(rs); err != nil || k != n {
		g.t.Fatalf("posted %d of %d: %v", k, n, err)
	}
}

// poll returns all completions.
func (g *rig) poll() []verbs.WorkCompletion {
	g.t.Helper()
	wcs := make([]verbs.WorkCompletion, g.o.depth+1)
	n, err := g.cq.Poll(wcs)
	if err != nil {
		g.t.Fatal(err)
	}
	return wcs[:n]
}

// encode makes a datagram of a packet and seals it.
func (g *rig) encode(p roce.Packet) []byte {
	b := make([]byte, p.Len())
	n, err := p.Put(b)
	if err != nil {
		g.t.Fatal(err)
	}
	g.flow.Seal(b[:n])
	return b[:n]
}

// packet fills in what every packet of the rig's requester has.
func (g *rig) packet(op roce.Opcode, psn roce.PSN, payload []byte) roce.Packet {
	return roce.Packet{BTH: roce.BTH{Opcode: op, PSN: psn, DestQP: g.qp.qpn, PKey: roce.PKeyDefault, MigReq: true}, Payload: payload}
}

// message returns the packets of a message and moves the PSN on. only is the
// opcode it would have as a single packet.
func (g *rig) message(only roce.Opcode, data []byte, reth roce.RETH, imm uint32) []roce.Packet {
	var ps []roce.Packet
	mtu := g.o.mtu
	n := mtu.Packets(len(data))
	for i := range n {
		op := only.InMessage(i == 0, i == n-1)
		p := g.packet(op, g.psn, data[i*int(mtu):min(len(data), (i+1)*int(mtu))])
		p.AckReq = i == n-1
		p.RETH, p.Imm = reth, imm
		g.psn = g.psn.Next()
		ps = append(ps, p)
	}
	return ps
}

// read returns a READ request and moves the PSN on.
func (g *rig) read(address uint64, rkey uint32, n int) roce.Packet {
	p := g.packet(roce.ReadRequest, g.psn, nil)
	p.RETH = roce.RETH{Address: address, RKey: rkey, Length: uint32(n)}
	g.psn = g.psn.Add(g.o.mtu.Packets(n))
	return p
}

// transmit sends datagrams as they are.
func (g *rig) transmit(datagrams ...[]byte) {
	g.t.Helper()
	for len(datagrams) > 0 {
		for len(datagrams) > 0 && g.queue.Add(g.to, datagrams[0]) {
			datagrams = datagrams[1:]
		}
		for g.queue.Len() > 0 {
			n, err := g.conn.Send(g.queue)
			if err != nil {
				g.t.Fatal(err)
			}
			g.total.Add(uint64(n))
		}
	}
}

// settle returns when the responder has handled all that was sent, and has sent
// its answers.
func (g *rig) settle() {
	g.t.Helper()
	deadline := time.Now().Add(patient)
	for g.d.Counters()["rx_packets"] < g.total.Load() {
		if time.Now().After(deadline) {
			g.t.Fatalf("%d datagrams sent; counters %v", g.total.Load(), g.d.Counters())
		}
		g.sync()
	}
	for {
		g.sync()
		if !g.busy() {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatal("the responder does not come to an end")
		}
	}
}

// sync waits for a round.
func (g *rig) sync() {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	if err := g.d.sync(); err != nil {
		g.t.Fatal(err)
	}
}

// busy reports whether the last round left something to do.
func (g *rig) busy() bool {
	before := g.d.Counters()["rounds"]
	g.sync()
	return g.d.Counters()["rounds"] != before
}

// answers returns what has come back so far.
func (g *rig) answers() []roce.Packet {
	g.t.Helper()
	var ps []roce.Packet
	for {
		n, err := g.conn.Receive(g.batch)
		if err != nil {
			g.t.Fatal(err)
		}
		if n == 0 {
			return ps
		}
		for i := range n {
			b, src := g.batch.Packet(i)
			if flow := g.conn.FlowFrom(src); !flow.Check(b) {
				g.t.Fatalf("answer % x: wrong ICRC", b)
			}
			var p roce.Packet
			if err := p.Decode(bytes.Clone(b)); err != nil {
				g.t.Fatalf("answer % x: %v", b, err)
			}
			if p.DestQP != peerQPN || p.PKey != roce.PKeyDefault {
				g.t.Fatalf("answer to QP %#x with P_Key %#x", p.DestQP, p.PKey)
			}
			ps = append(ps, p)
		}
	}
}

// exchange sends packets and returns all answers.
func (g *rig) exchange(ps ...roce.Packet) []roce.Packet {
	g.t.Helper()
	datagrams := make([][]byte, len(ps))
	for i, p := range ps {
		datagrams[i] = g.encode(p)
	}
	return g.exchangeRaw(datagrams...)
}

func (g *rig) exchangeRaw(datagrams ...[]byte) []roce.Packet {
	g.t.Helper()
	g.transmit(datagrams...)
	g.settle()
	return g.answers()
}

// acks checks that answers are one or more ACKs, the last as given.
func (g *rig) acks(answers []roce.Packet, psn roce.PSN, msn uint32) {
	g.t.Helper()
	if len(answers) == 0 {
		g.t.Fatal("no ACK")
	}
	for _, p := range answers {
		if p.Opcode != roce.Acknowledge || !p.AETH.Syndrome.IsACK() || p.AETH.Syndrome.Credits() != roce.CreditsInvalid {
			g.t.Fatalf("answer %v, %v; want an ACK", p.Opcode, p.AETH.Syndrome)
		}
	}
	last := answers[len(answers)-1]
	if last.PSN != psn || last.AETH.MSN != msn {
		g.t.Fatalf("ACK of PSN %#x, MSN %d; want %#x, %d", last.PSN, last.AETH.MSN, psn, msn)
	}
}

// one checks that there is exactly one answer, an acknowledge as given.
func (g *rig) one(answers []roce.Packet, s roce.Syndrome, psn roce.PSN) {
	g.t.Helper()
	if err := same(answers, s, psn); err != nil {
		g.t.Fatal(err)
	}
}

func same(answers []roce.Packet, s roce.Syndrome, psn roce.PSN) error {
	if len(answers) != 1 {
		return fmt.Errorf("%d answers, want one: %v", len(answers), s)
	}
	if p := answers[0]; p.Opcode != roce.Acknowledge || p.AETH.Syndrome != s || p.PSN != psn {
		return fmt.Errorf("answer %v, %v, PSN %#x; want %v, PSN %#x", p.Opcode, p.AETH.Syndrome, p.PSN, s, psn)
	}
	return nil
}

// none checks that there is no answer.
func (g *rig) none(answers []roce.Packet) {
	g.t.Helper()
	for _, p := range answers {
		g.t.Errorf("answer %v, %v, PSN %#x; want none", p.Opcode, p.AETH.Syndrome, p.PSN)
	}
}

// count checks counters of the device.
func (g *rig) count(want map[string]uint64) {
	g.t.Helper()
	got := g.d.Counters()
	for name, n := range want {
		if v, ok := got[name]; !ok || v != n {
			g.t.Errorf("counter %s is %d, want %d", name, v, n)
		}
	}
}

// pattern returns n bytes that no two offsets repeat nearby.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// event returns the next asynchronous event.
func (g *rig) event() verbs.Event {
	g.t.Helper()
	select {
	case e := <-g.d.Events():
		return e
	case <-time.After(patient):
		g.t.Fatal("no event")
	}
	return verbs.Event{}
}

// otherPort returns a socket on the requester's address with another port.
func otherPort(t testing.TB, g *rig) *udp.Conn {
	t.Helper()
	c, err := udp.Listen(netip.AddrPortFrom(g.flow.Src, 0), udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
