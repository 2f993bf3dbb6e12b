//go:build linux

package udp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rocelink/fpga/roce"
)

// testAddr is an address of this process in 127.40.0.0/16, so that tests that
// run at the same time can have the same port.
func testAddr() netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, 40, byte(pid >> 8), byte(pid)})
}

var loopback6 = netip.IPv6Loopback()

func listen(t testing.TB, addr netip.Addr, port uint16, cfg Config) *Conn {
	t.Helper()
	c, err := Listen(netip.AddrPortFrom(addr, port), cfg)
	if err != nil {
		if addr == loopback6 && errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Skip("this machine has no IPv6")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// sendAll sends what is in q, with a bound.
func sendAll(t testing.TB, c *Conn, q *SendQueue) {
	t.Helper()
	for range 1000 {
		if _, err := c.Send(q); err != nil {
			t.Fatal(err)
		}
		if q.Len() == 0 {
			return
		}
		if _, err := c.WaitSend(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the socket buffer stays full")
}

// receiveAll hands n packets to got, with a bound.
func receiveAll(t testing.TB, c *Conn, b *Batch, n int, got func(p []byte, src netip.AddrPort)) {
	t.Helper()
	for n > 0 {
		k, err := c.Receive(b)
		if err != nil {
			t.Fatal(err)
		}
		if k != b.Len() {
			t.Fatalf("received %d, batch has %d", k, b.Len())
		}
		for i := range k {
			got(b.Packet(i))
		}
		n -= k
		if k == 0 {
			if ok, err := c.Wait(5 * time.Second); err != nil || !ok {
				t.Fatalf("%d packets missing: readable %v, %v, %+v", n, ok, err, c.Counters())
			}
		}
	}
	if n < 0 {
		t.Fatalf("%d packets too many", -n)
	}
}

var configs = map[string]Config{
	"offloads": {},
	"no GSO":   {GSO: GSONever},
	"no GRO":   {NoGRO: true},
	"plain":    {GSO: GSONever, NoGRO: true},
	"always":   {GSO: GSOAlways},
}

// Packets of mixed sizes arrive one by one, whole, in order and with the right
// source, whatever is put together on the way.
func TestMixedSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, addr := range []netip.Addr{testAddr(), loopback6} {
		for name, cfg := range configs {
			t.Run(fmt.Sprintf("%v/%s", addr, name), func(t *testing.T) {
				rx := listen(t, addr, 0, cfg)
				tx := listen(t, addr, 0, cfg)
				q := tx.NewSendQueue(200)
				batch := rx.NewBatch(0)
				for round := range 50 {
					var want [][]byte
					for q.Len() < q.Cap() && len(want) < 200 {
						size := []int{1, 16, 28, 100, 272, 1040, 4112, 4132}[rng.IntN(8)]
						for range 1 + rng.IntN(70) {
							p := make([]byte, size)
							for i := range p {
								p[i] = byte(rng.Uint32())
							}
							if !q.Add(rx.LocalAddr(), p) {
								break
							}
							want = append(want, p)
						}
					}
					sendAll(t, tx, q)
					i := 0
					receiveAll(t, rx, batch, len(want), func(p []byte, src netip.AddrPort) {
						if i < len(want) && !bytes.Equal(p, want[i]) {
							t.Fatalf("round %d, packet %d: %d bytes, want %d", round, i, len(p), len(want[i]))
						}
						if src != tx.LocalAddr() {
							t.Fatalf("source %v, want %v", src, tx.LocalAddr())
						}
						if cap(p) != len(p) {
							t.Fatal("appending to a packet reaches the next")
						}
						i++
					})
				}
				a, b := tx.Counters(), rx.Counters()
				if a.SentPackets != b.ReceivedPackets || a.SentBytes != b.ReceivedBytes || a.SentPackets < 50*200 {
					t.Errorf("sent %+v\nreceived %+v", a, b)
				}
				if b.KernelDropped != 0 || b.Truncated != 0 || a.SendErrors != 0 || a.GSOFallbacks != 0 {
					t.Errorf("losses: sent %+v\nreceived %+v", a, b)
				}
				gso, _ := tx.Offloads()
				_, gro := rx.Offloads()
				if (a.Segmented > 0) != gso || (b.Coalesced > 0) != (gso && gro) {
					t.Errorf("GSO %v, GRO %v, but %d buffers cut, %d put together", gso, gro, a.Segmented, b.Coalesced)
				}
				if a.SendBatches == 0 || a.SendCalls < a.SendBatches || a.SendCalls > a.SentPackets/2 {
					t.Errorf("%d calls, %d batches for %d packets", a.SendCalls, a.SendBatches, a.SentPackets)
				}
			})
		}
	}
}

// Several senders and receivers on one queue and one batch.
func TestManyPeers(t *testing.T) {
	const peers = 150 // more than a queue remembers at first
	hub := listen(t, testAddr(), 0, Config{})
	var conns []*Conn
	index := map[netip.AddrPort]int{}
	for i := range peers {
		c := listen(t, testAddr(), 0, Config{ReceiveBuffer: 1 << 16, SendBuffer: 1 << 16})
		conns = append(conns, c)
		index[c.LocalAddr()] = i
	}
	q := hub.NewSendQueue(400)
	for range 3 {
		for i, c := range conns {
			for range 2 {
				if !q.Add(c.LocalAddr(), []byte{byte(i), 1, 2, 3}) {
					t.Fatal("queue full")
				}
			}
		}
		sendAll(t, hub, q)
		for i, c := range conns {
			receiveAll(t, c, c.NewBatch(4), 2, func(p []byte, src netip.AddrPort) {
				if p[0] != byte(i) || src != hub.LocalAddr() {
					t.Fatalf("peer %d got %v from %v", i, p, src)
				}
			})
		}
	}
	for i, c := range conns {
		r := c.NewSendQueue(1)
		r.Add(hub.LocalAddr(), []byte{byte(i)})
		sendAll(t, c, r)
	}
	receiveAll(t, hub, hub.NewBatch(7), peers, func(p []byte, src netip.AddrPort) {
		if i, ok := index[src]; !ok || byte(i) != p[0] {
			t.Fatalf("%v says it is %d", src, p[0])
		}
	})
}

// A whole RoCE packet with its ICRC by way of the sockets.
func TestICRCAcross(t *testing.T) {
	for _, addr := range []netip.Addr{testAddr(), loopback6} {
		rx, tx := listen(t, addr, 0, Config{}), listen(t, addr, 0, Config{})
		p := roce.Packet{BTH: roce.BTH{Opcode: roce.SendOnly, DestQP: 5}, Payload: []byte("across")}
		buf := make([]byte, p.Len())
		if _, err := p.Put(buf); err != nil {
			t.Fatal(err)
		}
		flow := tx.FlowTo(rx.LocalAddr())
		flow.Seal(buf)
		q := tx.NewSendQueue(0)
		q.Add(rx.LocalAddr(), buf)
		sendAll(t, tx, q)
		receiveAll(t, rx, rx.NewBatch(0), 1, func(b []byte, src netip.AddrPort) {
			flow := rx.FlowFrom(src)
			var got roce.Packet
			if err := got.Decode(b); err != nil || !flow.Check(b) || string(got.Payload) != "across" {
				t.Errorf("%v: %v, ICRC %v", addr, err, flow.Check(b))
			}
		})
	}
}

func TestListenRefuses(t *testing.T) {
	addr := testAddr()
	c := listen(t, addr, 0, Config{})
	for _, tt := range []struct {
		addr netip.AddrPort
		want error
		says string
	}{
		{netip.AddrPort{}, ErrAddress, "name one address"},
		{netip.MustParseAddrPort("0.0.0.0:4791"), ErrAddress, "name one address"},
		{netip.MustParseAddrPort("[::]:4791"), ErrAddress, "name one address"},
		{netip.MustParseAddrPort("224.0.0.1:4791"), ErrAddress, "name one address"},
		{netip.MustParseAddrPort("[fe80::1%no-such-interface]:4791"), ErrAddress, "no-such-interface"},
		{netip.MustParseAddrPort("203.0.113.7:4791"), unix.EADDRNOTAVAIL, "203.0.113.7:4791"},
		{c.LocalAddr(), unix.EADDRINUSE, c.LocalAddr().String()},
		{c.LocalAddr(), unix.EADDRINUSE, fmt.Sprintf("ss -ulpn sport = :%d", c.LocalAddr().Port())},
	} {
		d, err := Listen(tt.addr, Config{})
		if d != nil || !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v, want %v and %q", tt.addr, err, tt.want, tt.says)
		}
	}
}

func TestAddressFreeAfterClose(t *testing.T) {
	c := listen(t, testAddr(), 0, Config{})
	for range 10 {
		local := c.LocalAddr()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = listen(t, local.Addr(), local.Port(), Config{})
	}
}

func TestBuffers(t *testing.T) {
	c := listen(t, testAddr(), 0, Config{ReceiveBuffer: 100000, SendBuffer: 50000})
	if r, s := c.Buffers(); r != 100000 || s != 50000 {
		t.Errorf("granted %d and %d", r, s)
	}
	d := listen(t, testAddr(), 0, Config{})
	if r, s := d.Buffers(); r < 100000 || s < 50000 || r > DefaultBuffer || s > DefaultBuffer {
		t.Errorf("by default %d and %d", r, s)
	}
}

func TestWait(t *testing.T) {
	c := listen(t, testAddr(), 0, Config{})
	for _, d := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		start := time.Now()
		if ok, err := c.Wait(d); ok || err != nil || time.Since(start) < d {
			t.Errorf("%v: %v, %v after %v", d, ok, err, time.Since(start))
		}
	}
	// A Wake before the Wait is not lost, and counts once.
	c.Wake()
	c.Wake()
	start := time.Now()
	if ok, err := c.Wait(time.Minute); ok || err != nil || time.Since(start) > 10*time.Second {
		t.Errorf("woken: %v, %v after %v", ok, err, time.Since(start))
	}
	if ok, err := c.Wait(0); ok || err != nil {
		t.Errorf("a second time: %v, %v", ok, err)
	}
	// Data and a Wake: both are told by one Wait.
	q := c.NewSendQueue(0)
	q.Add(c.LocalAddr(), []byte("to myself"))
	sendAll(t, c, q)
	if ok, err := c.Wait(time.Minute); !ok || err != nil {
		t.Errorf("readable: %v, %v", ok, err)
	}
	c.Wake()
	if ok, err := c.Wait(time.Minute); !ok || err != nil {
		t.Errorf("readable and woken: %v, %v", ok, err)
	}
	if n, err := c.Receive(c.NewBatch(1)); n != 1 || err != nil {
		t.Errorf("received %d, %v", n, err)
	}
	if ok, err := c.Wait(0); ok || err != nil {
		t.Errorf("the Wake is told twice: %v, %v", ok, err)
	}
	if ok, err := c.WaitSend(time.Minute); !ok || err != nil {
		t.Errorf("writable: %v, %v", ok, err)
	}
}

func TestWakeAndCloseWhileWaiting(t *testing.T) {
	c := listen(t, testAddr(), 0, Config{})
	type result struct {
		ok  bool
		err error
	}
	wait := func() chan result {
		done := make(chan result, 1)
		go func() {
			ok, err := c.Wait(-1)
			done <- result{ok, err}
		}()
		return done
	}
	get := func(done chan result) result {
		select {
		case r := <-done:
			return r
		case <-time.After(10 * time.Second):
			t.Fatal("still waiting")
			return result{}
		}
	}
	for range 100 {
		done := wait()
		c.Wake()
		if r := get(done); r.ok || r.err != nil {
			t.Fatalf("woken: %+v", r)
		}
	}
	done := wait()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if r := get(done); r.ok || !errors.Is(r.err, net.ErrClosed) {
		t.Errorf("closed: %+v", r)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := c.Wait(-1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("wait after close: %v", err)
	}
	if _, err := c.WaitSend(-1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("wait to send after close: %v", err)
	}
	if _, err := c.Receive(c.NewBatch(1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("receive after close: %v", err)
	}
	q := c.NewSendQueue(1)
	q.Add(netip.AddrPortFrom(testAddr(), 9), []byte{1})
	if _, err := c.Send(q); !errors.Is(err, net.ErrClosed) || q.Len() != 1 {
		t.Errorf("send after close: %v", err)
	}
	c.Wake()
	c.Counters()
}

// Everything at once, for the race detector and for descriptors used after they
// are closed.
func TestCloseUnderLoad(t *testing.T) {
	for range 20 {
		c := listen(t, testAddr(), 0, Config{})
		var wg sync.WaitGroup
		moved := make(chan struct{})
		wg.Go(func() {
			b := c.NewBatch(2)
			for n := 0; ; {
				k, err := c.Receive(b)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n < 100 && n+k >= 100 {
					close(moved)
				}
				n += k
				if k == 0 {
					if _, err := c.Wait(-1); errors.Is(err, net.ErrClosed) {
						return
					}
				}
			}
		})
		wg.Go(func() {
			q := c.NewSendQueue(8)
			for {
				for q.Add(c.LocalAddr(), make([]byte, 64)) {
				}
				if _, err := c.Send(q); err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
		wg.Go(func() {
			for range 100 {
				c.Wake()
				c.Counters()
			}
		})
		select {
		case <-moved:
		case <-time.After(10 * time.Second):
			t.Fatal("nothing moves")
		}
		c.Close()
		wg.Wait()
	}
}

// The kernel refuses to cut a buffer when a socket asks for no checksums: the
// packets go one by one, none is lost, and the offload stays off.
func TestGSORefused(t *testing.T) {
	rx, tx := listen(t, testAddr(), 0, Config{}), listen(t, testAddr(), 0, Config{})
	if gso, _ := tx.Offloads(); !gso {
		t.Skip("the kernel has no UDP_SEGMENT: Linux 4.18 has")
	}
	if err := unix.SetsockoptInt(tx.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	q := tx.NewSendQueue(0)
	const n = 40
	for i := range n {
		q.Add(rx.LocalAddr(), []byte{byte(i), 0, 0, 0})
	}
	if sent, err := tx.Send(q); sent != n || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	i := 0
	receiveAll(t, rx, rx.NewBatch(0), n, func(p []byte, _ netip.AddrPort) {
		if p[0] != byte(i) {
			t.Fatalf("packet %d at place %d", p[0], i)
		}
		i++
	})
	k := tx.Counters()
	if gso, _ := tx.Offloads(); gso || k.GSOFallbacks != 1 || k.Segmented != 0 || k.SendErrors != 0 {
		t.Errorf("GSO %v, %+v", gso, k)
	}
}

// What cannot be sent is dropped and told; the rest goes.
func TestSendErrors(t *testing.T) {
	rx, tx := listen(t, testAddr(), 0, Config{}), listen(t, testAddr(), 0, Config{})
	q := tx.NewSendQueue(0)
	good := func() { q.Add(rx.LocalAddr(), []byte("good")) }
	tooLong := make([]byte, 65508)
	good()
	q.Add(rx.LocalAddr(), tooLong)
	good()
	q.Add(netip.AddrPortFrom(loopback6, 9), []byte("wrong family"))
	good()
	q.Add(netip.AddrPort{}, []byte("nowhere"))
	q.Add(netip.MustParseAddrPort("255.255.255.255:9"), []byte("broadcast is not allowed"))
	good()
	sent, err := tx.Send(q)
	var e *SendError
	if sent != 4 || !errors.Is(err, unix.EMSGSIZE) || !errors.As(err, &e) || e.Dst != rx.LocalAddr() || e.Size != len(tooLong) {
		t.Errorf("sent %d, %v", sent, err)
	}
	if q.Len() != 0 {
		t.Errorf("%d are left", q.Len())
	}
	receiveAll(t, rx, rx.NewBatch(0), 4, func(p []byte, _ netip.AddrPort) {
		if string(p) != "good" {
			t.Errorf("got %q", p)
		}
	})
	if k := tx.Counters(); k.SendErrors != 4 || k.SentPackets != 4 {
		t.Errorf("%+v", k)
	}
	// Two too long in a row, then a shorter one: the packets are at fault, not
	// the offload.
	before, _ := tx.Offloads()
	q.Add(rx.LocalAddr(), tooLong[:65507])
	q.Add(netip.AddrPortFrom(loopback6, 9), []byte("wrong family"))
	if sent, err := tx.Send(q); sent != 1 || !errors.Is(err, ErrAddress) {
		t.Errorf("sent %d, %v", sent, err)
	}
	if after, _ := tx.Offloads(); after != before {
		t.Error("the offload was switched off")
	}
	if _, err := rx.Send(q); !errors.Is(err, ErrAddress) && q.Len() > 0 {
		t.Errorf("a queue of another socket: %v", err)
	}
	if _, err := rx.Receive(tx.NewBatch(1)); !errors.Is(err, ErrAddress) {
		t.Errorf("a batch of another socket: %v", err)
	}
}

// A peer that is not there stops nothing.
func TestPeerGone(t *testing.T) {
	rx, tx := listen(t, testAddr(), 0, Config{}), listen(t, testAddr(), 0, Config{})
	// Errors from ICMP reach an unconnected socket only if it asks for them.
	if err := unix.SetsockoptInt(tx.fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		t.Fatal(err)
	}
	gone := listen(t, testAddr(), 0, Config{})
	there := gone.LocalAddr()
	gone.Close()
	q := tx.NewSendQueue(0)
	b := tx.NewBatch(0)
	for range 50 {
		q.Add(there, []byte("anyone?"))
		q.Add(rx.LocalAddr(), []byte("good"))
		sendAll(t, tx, q)
		if n, err := tx.Receive(b); n != 0 || err != nil {
			t.Fatalf("received %d, %v", n, err)
		}
	}
	n := 0
	receiveAll(t, rx, rx.NewBatch(0), 50, func([]byte, netip.AddrPort) { n++ })
	if n != 50 {
		t.Errorf("%d of 50 arrived", n)
	}
}

func TestKernelDrops(t *testing.T) {
	rx := listen(t, testAddr(), 0, Config{ReceiveBuffer: 4096, NoGRO: true})
	tx := listen(t, testAddr(), 0, Config{GSO: GSONever})
	q := tx.NewSendQueue(0)
	const n = 200
	for range n {
		q.Add(rx.LocalAddr(), make([]byte, 1000))
	}
	sendAll(t, tx, q)
	// Delivery may lag behind Send: look until all are accounted for.
	b := rx.NewBatch(0)
	got := 0
	for end := time.Now().Add(5 * time.Second); got+int(rx.Counters().KernelDropped) < n && time.Now().Before(end); {
		k, err := rx.Receive(b)
		if err != nil {
			t.Fatal(err)
		}
		if got += k; k == 0 {
			if _, err := rx.Wait(time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
	}
	if k := rx.Counters(); k.KernelDropped == 0 || int(k.KernelDropped)+got != n || rx.Counters().KernelDropped != k.KernelDropped {
		t.Errorf("%d sent, %d received, %d dropped", n, got, k.KernelDropped)
	}
}

func TestTruncated(t *testing.T) {
	rx := listen(t, testAddr(), 0, Config{NoGRO: true})
	tx := listen(t, testAddr(), 0, Config{})
	q := tx.NewSendQueue(0)
	q.Add(rx.LocalAddr(), make([]byte, slotBytes+1))
	q.Add(rx.LocalAddr(), []byte("good"))
	q.Add(rx.LocalAddr(), nil)
	sendAll(t, tx, q)
	sizes := []int{4, 0}
	receiveAll(t, rx, rx.NewBatch(0), 2, func(p []byte, _ netip.AddrPort) {
		if len(p) != sizes[0] {
			t.Errorf("%d bytes, want %d", len(p), sizes[0])
		}
		sizes = sizes[1:]
	})
	if k := rx.Counters(); k.Truncated != 1 {
		t.Errorf("%+v", k)
	}
	if slotBytes <= roce.MaxPacket {
		t.Error("a slot does not hold the longest packet")
	}
}

func TestQueue(t *testing.T) {
	c := listen(t, testAddr(), 0, Config{})
	q := c.NewSendQueue(3)
	dst := c.LocalAddr()
	for range 3 {
		if !q.Add(dst, []byte{1}) {
			t.Fatal("full too early")
		}
	}
	if q.Add(dst, []byte{1}) || q.Len() != 3 || q.Cap() != 3 {
		t.Errorf("%d of %d", q.Len(), q.Cap())
	}
	q.drop(2)
	if !q.Add(dst, []byte{2}) || q.Len() != 2 {
		t.Errorf("after two left: %d", q.Len())
	}
	q.Reset()
	if q.Len() != 0 {
		t.Error("reset leaves something")
	}
	if n, err := c.Send(q); n != 0 || err != nil {
		t.Errorf("nothing to send: %d, %v", n, err)
	}
}

func TestNoAllocations(t *testing.T) {
	for _, addr := range []netip.Addr{testAddr(), loopback6} {
		for name, cfg := range configs {
			rx, tx := listen(t, addr, 0, cfg), listen(t, addr, 0, cfg)
			q, b := tx.NewSendQueue(64), rx.NewBatch(0)
			packet := make([]byte, 1040)
			dst := rx.LocalAddr()
			once := func() {
				for q.Add(dst, packet) {
				}
				if n, err := tx.Send(q); n != 64 || err != nil {
					t.Fatal(n, err)
				}
				for got := 0; got < 64; {
					n, err := rx.Receive(b)
					if err != nil {
						t.Fatal(err)
					}
					for i := range n {
						p, src := b.Packet(i)
						if len(p) != len(packet) || !src.IsValid() {
							t.Fatal(len(p), src)
						}
					}
					got += n
					if n == 0 {
						if ok, err := rx.Wait(time.Second); !ok || err != nil {
							t.Fatal(ok, err)
						}
					}
				}
				if ok, err := rx.Wait(0); ok || err != nil {
					t.Fatal(ok, err)
				}
				if ok, err := tx.WaitSend(time.Second); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			if n := testing.AllocsPerRun(50, once); n != 0 {
				t.Errorf("%v, %s: %v allocations a batch", addr, name, n)
			}
			rx.Close()
			tx.Close()
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(100, 30)
	f.Add(0, 0)
	f.Add(4112*15, 4112)
	f.Fuzz(func(t *testing.T, n, size int) {
		if n < 0 || n > 1<<16 {
			return
		}
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i * 7 / 3)
		}
		var b Batch
		if n/max(size, 1) > 5000 {
			return
		}
		b.split(data, size, 3)
		var joined []byte
		for i, p := range b.packets {
			if p.slot != 3 || len(p.data) > max(size, 0) && size > 0 || i < len(b.packets)-1 && len(p.data) != size {
				t.Fatalf("%d bytes at %d: packet %d has %d", n, size, i, len(p.data))
			}
			joined = append(joined, p.data...)
		}
		if !bytes.Equal(joined, data) || n > 0 && len(b.packets[len(b.packets)-1].data) == 0 {
			t.Fatalf("%d bytes at %d: %d packets", n, size, len(b.packets))
		}
	})
}

// BenchmarkLoopback is one sender and one receiver on this machine: what plain
// UDP carries, the measure for everything above it. A window keeps the sender
// from running over the receiver; what is lost all the same does not count.
func BenchmarkLoopback(b *testing.B) {
	for _, name := range []string{"offloads", "no GSO", "no GRO", "plain"} {
		for _, payload := range []int{64, 1024, 4096} {
			b.Run(fmt.Sprintf("%s/%d", name, payload), func(b *testing.B) {
				rx, tx := listen(b, testAddr(), 0, configs[name]), listen(b, testAddr(), 0, configs[name])
				stats, err := Loopback(tx, rx, payload, b.N)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(payload))
				b.ReportMetric(float64(stats.Bytes)*8/stats.Elapsed.Seconds()/1e9, "Gb/s")
				b.ReportMetric(float64(stats.Lost)/float64(b.N), "lost/op")
			})
		}
	}
}
