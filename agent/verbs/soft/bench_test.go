package soft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

// benchWindow is how many packets are under way, about a megabyte.
const benchWindow = 256

// burst is how many packets are sent at a time: four buffers of GSO.
const burst = 60

// BenchmarkGoodput sends messages at path MTU 4096 as fast as they are
// acknowledged. "ratio" is its goodput over that of plainUDP's transfer: the
// same packets between the same kind of sockets in the same run, with nothing
// looked at. The two take turns, and the best turn of each counts, because
// whatever else runs on the machine disturbs only some.
func BenchmarkGoodput(b *testing.B) {
	for _, only := range []roce.Opcode{roce.SendOnly, roce.WriteOnly, roce.WriteOnlyImm} {
		for _, size := range []int{4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%v/%dKiB", only, size>>10), func(b *testing.B) {
				run, sizes := goodput(b, only, size)
				var fastest, plain float64 // messages a second
				b.ResetTimer()
				for left := b.N; left > 0; {
					n := min(left, max(b.N/turns, 1))
					left -= n
					b.StartTimer()
					took := run(n)
					b.StopTimer()
					fastest = max(fastest, float64(n)/took.Seconds())
					plain = max(plain, float64(n)/plainUDP(b, sizes, n).Seconds())
				}
				b.ReportMetric(fastest/plain, "ratio")
				b.ReportMetric(fastest*float64(size)/1e9, "GB/s")
			})
		}
	}
}

// turns is how often device and plain sockets take turns.
const turns = 16

// goodput returns a function that sends n messages and says how long it took,
// and the lengths of the packets of a message.
func goodput(b *testing.B, only roce.Opcode, size int) (run func(n int) time.Duration, sizes []int) {
	const mtu = 4096
	packets := size / mtu
	messages := benchWindow / packets
	g := newRig(b, options{mtu: mtu, memory: messages * size, receives: 2 * messages})
	wcs := make([]verbs.WorkCompletion, 2*messages)
	rs := make([]verbs.ReceiveRequest, 2*messages)
	for i := range rs {
		rs[i] = verbs.ReceiveRequest{ID: uint64(i), Address: g.mr.base + uint64(i%messages)*uint64(size), Length: uint32(size), LKey: g.mr.lkey}
	}
	if only != roce.WriteOnly {
		if _, err := g.qp.PostReceive(rs); err != nil {
			b.Fatal(err)
		}
	}
	// A window's worth of packets, of which PSN and ICRC change each time.
	var datagrams [][]byte
	for i := range messages {
		reth := roce.RETH{Address: g.mr.base + uint64(i*size), RKey: g.mr.rkey, Length: uint32(size)}
		for _, p := range g.message(only, pattern(size, i), reth, uint32(i)) {
			datagrams = append(datagrams, g.encode(p))
			if i == 0 {
				sizes = append(sizes, p.Len())
			}
		}
	}
	// PSNs count up to 2^24 and go round, so positions are kept in 64 bits.
	var sent, acked, total uint64
	return func(n int) time.Duration {
		start := time.Now()
		for total += uint64(n) * uint64(packets); acked < total; {
			for n := min(burst, total-sent); n > 0 && benchWindow-(sent-acked) >= n; n-- {
				d := datagrams[sent%benchWindow]
				psn := uint32(sent) & roce.PSNMask
				if sent%8 == 7 {
					psn |= 1 << 31 // AckReq
				}
				binary.BigEndian.PutUint32(d[8:], psn)
				g.flow.Seal(d)
				g.queue.Add(g.to, d)
				sent++
			}
			if _, err := g.conn.Send(g.queue); err != nil {
				b.Fatal(err)
			}
			if only != roce.WriteOnly {
				n, err := g.cq.Poll(wcs)
				if err != nil {
					b.Fatal(err)
				}
				for i, wc := range wcs[:n] {
					if wc.Status != verbs.Success {
						b.Fatal(wc.Status)
					}
					rs[i] = verbs.ReceiveRequest{ID: wc.ID, Address: g.mr.base + wc.ID%uint64(messages)*uint64(size), Length: uint32(size), LKey: g.mr.lkey}
				}
				if _, err := g.qp.PostReceive(rs[:n]); err != nil {
					b.Fatal(err)
				}
			}
			n, err := g.conn.Receive(g.batch)
			if err != nil {
				b.Fatal(err)
			}
			if n == 0 && benchWindow-(sent-acked) < max(1, min(burst, total-sent)) {
				if readable, err := g.conn.Wait(patient); !readable {
					b.Fatalf("no answer; %d sent, %d acknowledged, counters %v: %v", sent, acked, g.d.Counters(), err)
				}
			}
			for i := range n {
				d, _ := g.batch.Packet(i)
				var p roce.Packet
				if err := p.Decode(d); err != nil || !p.AETH.Syndrome.IsACK() {
					b.Fatal(p.AETH.Syndrome, err)
				}
				acked += uint64(p.PSN.Sub(roce.PSN(acked&roce.PSNMask)) + 1)
			}
		}
		took := time.Since(start)
		if msgs := g.d.Counters(); (msgs["write_requests"]+msgs["send_messages"])*uint64(packets) != total {
			b.Fatalf("counters %v after %d packets", msgs, total)
		}
		return took
	}, sizes
}

// plainUDP sends n times packets of the given lengths from one socket to
// another, which looks at nothing and answers each batch with how many have
// come, and returns how long it took. Both sides sleep as the device and its
// requester do.
func plainUDP(b *testing.B, sizes []int, n int) time.Duration {
	listen := func() *udp.Conn {
		c, err := udp.Listen(netip.AddrPortFrom(address(), 0), udp.Config{})
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	from, to := listen(), listen()
	defer from.Close()
	defer to.Close()
	total := uint64(n) * uint64(len(sizes))
	failed := make(chan error, 1)
	go func() {
		batch, queue := to.NewBatch(0), to.NewSendQueue(1)
		answer := make([]byte, 20)
		idle := time.Now()
		for received := uint64(0); received < total; {
			n, err := to.Receive(batch)
			if err != nil {
				failed <- err
				return
			}
			if n > 0 {
				received += uint64(n)
				binary.BigEndian.PutUint64(answer, received)
				queue.Add(from.LocalAddr(), answer)
				if _, err := to.Send(queue); err != nil {
					failed <- err
					return
				}
				idle = time.Now()
			} else if time.Since(idle) > spin {
				if readable, err := to.Wait(patient); !readable {
					failed <- fmt.Errorf("received %d of %d: %w", received, total, err)
					return
				}
			}
		}
	}()
	var datagrams [][]byte
	for i := range benchWindow {
		datagrams = append(datagrams, pattern(sizes[i%len(sizes)], i))
	}
	queue, batch := from.NewSendQueue(0), from.NewBatch(0)
	start := time.Now()
	var sent, received uint64
	for received < total {
		if n := min(burst, total-sent); n > 0 && benchWindow-(sent-received) >= n {
			for range n {
				queue.Add(to.LocalAddr(), datagrams[sent%benchWindow])
				sent++
			}
		}
		if _, err := from.Send(queue); err != nil {
			b.Fatal(err)
		}
		n, err := from.Receive(batch)
		if err != nil {
			b.Fatal(err)
		}
		if n == 0 && benchWindow-(sent-received) < max(1, min(burst, total-sent)) {
			if readable, err := from.Wait(patient); !readable {
				select {
				case err = <-failed:
				default:
				}
				b.Fatalf("no answer: %v", err)
			}
		}
		for i := range n {
			d, _ := batch.Packet(i)
			received = binary.BigEndian.Uint64(d)
		}
	}
	return time.Since(start)
}

// BenchmarkRead reads a megabyte at a time.
func BenchmarkRead(b *testing.B) {
	const mtu, size = 4096, 1 << 20
	g := newRig(b, options{mtu: mtu, memory: size})
	b.SetBytes(size)
	b.ReportAllocs()
	d := g.encode(g.read(g.mr.base, g.mr.rkey, size))
	for i := range b.N {
		psn := uint32(i*(size/mtu)) & roce.PSNMask
		binary.BigEndian.PutUint32(d[8:], psn)
		g.flow.Seal(d)
		g.queue.Add(g.to, d)
		if _, err := g.conn.Send(g.queue); err != nil {
			b.Fatal(err)
		}
		for n := 0; n < size/mtu; {
			k, err := g.conn.Receive(g.batch)
			if err != nil {
				b.Fatal(err)
			}
			if n += k; k == 0 {
				if readable, err := g.conn.Wait(patient); !readable {
					b.Fatalf("%d of %d responses: %v", n, size/mtu, err)
				}
			}
		}
	}
}
