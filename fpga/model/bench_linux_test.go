package model

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

// fastHost acknowledges what comes in order, once for each batch, and checks
// no more than it must.
func fastHost(b *testing.B, addr netip.Addr, peers map[roce.QPN]roce.QPN) (bytes *atomic.Uint64) {
	c, err := udp.Listen(netip.AddrPortFrom(addr, roce.Port), udp.Config{})
	if err != nil {
		b.Fatal(err)
	}
	bytes = new(atomic.Uint64)
	done := make(chan struct{})
	type state struct {
		peer     roce.QPN
		expected roce.PSN
		asked    bool
		nak      bool
		ack      []byte
	}
	qps := map[roce.QPN]*state{}
	for qpn, peer := range peers {
		qps[qpn] = &state{peer: peer, ack: make([]byte, roce.MinPacket+roce.AETHLen)}
	}
	go func() {
		defer close(done)
		batch, queue := c.NewBatch(0), c.NewSendQueue(0)
		for {
			n, err := c.Receive(batch)
			if err != nil {
				return
			}
			var src netip.AddrPort
			for i := range n {
				var p []byte
				p, src = batch.Packet(i)
				q := qps[roce.QPN(p[5])<<16|roce.QPN(p[6])<<8|roce.QPN(p[7])]
				psn := roce.PSN(p[9])<<16 | roce.PSN(p[10])<<8 | roce.PSN(p[11])
				if psn == q.expected {
					bytes.Add(uint64(len(p) - roce.MinPacket))
					q.expected = q.expected.Next()
					q.asked = q.asked || p[8]&0x80 != 0
					q.nak = false
				} else if !q.nak {
					q.nak, q.asked = true, true
				}
			}
			for _, q := range qps {
				if !q.asked {
					continue
				}
				q.asked = false
				pk := roce.Packet{BTH: roce.BTH{Opcode: roce.Acknowledge, DestQP: q.peer, PSN: q.expected.Add(-1)}, AETH: roce.AETH{Syndrome: roce.ACK(31)}}
				if q.nak {
					pk.PSN, pk.AETH.Syndrome = q.expected, roce.Nak(0)
				}
				if _, err := pk.Put(q.ack); err != nil {
					return
				}
				flow := c.FlowTo(src)
				flow.Seal(q.ack)
				queue.Add(src, q.ack)
			}
			if _, err := c.Send(queue); err != nil {
				return
			}
			if n == 0 {
				if _, err := c.Wait(-1); err != nil {
					return
				}
			}
		}
	}()
	b.Cleanup(func() { c.Close(); <-done })
	return bytes
}

// BenchmarkDriver sends over loopback sockets to a host that only
// acknowledges, in the same process.
func BenchmarkDriver(b *testing.B) {
	for name, c := range map[string]struct {
		streams int
		s       streamSettings
		window  int
	}{
		"1 stream of 64KiB frames":     {1, streamSettings{size: 65536}, 128},
		"4 streams of 64KiB frames":    {4, streamSettings{size: 65536}, 64},
		"1 stream of 4KiB frames":      {1, streamSettings{size: 4096}, 128},
		"4 streams of 64KiB at 1 Gb/s": {4, streamSettings{size: 65536, kbps: 1_000_000}, 64},
	} {
		b.Run(name, func(b *testing.B) {
			w := live(b, Config{}, DriverConfig{}, inProcess)
			peers := map[roce.QPN]roce.QPN{}
			for i := range c.streams {
				q := defaults()
				q.index, q.mtu, q.window, q.psn, q.timeout = i, 4096, c.window, 0, 14
				w.openQP(q)
				peers[q.remote()] = q.local()
			}
			bytes := fastHost(b, w.host.addr, peers)
			b.ResetTimer()
			start := time.Now()
			for i := range c.streams {
				s := c.s
				s.index = i
				w.startStream(s)
			}
			window := time.NewTicker(10 * time.Millisecond) // of traffic is one op
			defer window.Stop()
			for b.Loop() {
				<-window.C
			}
			b.ReportMetric(float64(bytes.Load())*8/1e9/time.Since(start).Seconds(), "Gb/s")
			b.ReportMetric(0, "ns/op")
			var resent uint64
			for i := range c.streams {
				resent += w.stat(i, regs.CoreStatPacketsResent)
			}
			b.ReportMetric(float64(resent)/time.Since(start).Seconds(), "resent/s")
		})
	}
}
