package udp

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"rocelink/fpga/roce"
)

// LoopbackStats is what [Loopback] measured.
type LoopbackStats struct {
	Packets, Lost int
	Bytes         int64 // payload received
	Elapsed       time.Duration
}

// Loopback measures what plain UDP carries from one socket to another of this
// machine, without protocol, ICRC or copies: the baseline for anything built on
// the two. It sends n SEND_ONLY packets with payload bytes each from tx to rx,
// which must be idle, and never has more than half of the receive buffer under
// way.
func Loopback(tx, rx *Conn, payload, n int) (LoopbackStats, error) {
	p := roce.Packet{BTH: roce.BTH{Opcode: roce.SendOnly}, Payload: make([]byte, payload)}
	packet := make([]byte, p.Len())
	if _, err := p.Put(packet); err != nil {
		return LoopbackStats{}, fmt.Errorf("roce/udp: loopback with %d bytes: %w", payload, err)
	}
	received, _ := rx.Buffers()
	// The kernel charges a small packet with its whole buffer, up to 1 KiB.
	window := int64(max(1, received/2/(len(packet)+1024)))

	var got atomic.Int64
	var shut atomic.Bool // the sender waits for the window to open
	var bytes int64
	stop := make(chan struct{})
	done := make(chan error, 1)
	start := time.Now()
	last := start
	go func() {
		b := rx.NewBatch(0)
		for got.Load() < int64(n) {
			k, err := rx.Receive(b)
			if err != nil {
				done <- err
				return
			}
			if k > 0 {
				for i := range k {
					d, _ := b.Packet(i)
					bytes += int64(len(d) - len(packet) + payload)
				}
				got.Add(int64(k))
				last = time.Now()
				if shut.Load() {
					tx.Wake()
				}
				continue
			}
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := rx.Wait(-1); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()

	err := sendWindowed(tx, rx, packet, n, window, &got, &shut)
	close(stop)
	rx.Wake()
	if e := <-done; e != nil && !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	return LoopbackStats{
		Packets: int(got.Load()),
		Lost:    n - int(got.Load()),
		Bytes:   bytes,
		Elapsed: last.Sub(start),
	}, err
}

// lossTimeout is how long nothing must arrive before what is under way counts
// as lost.
const lossTimeout = 20 * time.Millisecond

var errBusy = errors.New("roce/udp: the sending socket of a loopback measurement is not idle")

// sendWindowed sends n packets, at most window of them ahead of got.
func sendWindowed(tx, rx *Conn, packet []byte, n int, window int64, got *atomic.Int64, shut *atomic.Bool) error {
	q := tx.NewSendQueue(int(min(window, 512)))
	dst := rx.LocalAddr()
	lost := int64(0) // given up waiting for
	for sent := int64(0); ; {
		for sent < int64(n) && sent-got.Load()-lost < window && q.Add(dst, packet) {
			sent++
		}
		if q.Len() > 0 {
			if _, err := tx.Send(q); err != nil {
				return err
			}
			if q.Len() > 0 {
				if _, err := tx.WaitSend(time.Second); err != nil {
					return err
				}
			}
			continue
		}
		// The window is shut, or all is sent. The receiver tells when more has
		// arrived; if nothing does for a while, the rest is lost.
		before := got.Load()
		under := func() int64 { return sent - got.Load() - lost }
		if sent == int64(n) && under() <= 0 {
			return nil
		}
		shut.Store(true)
		if sent < int64(n) && under() < window || under() <= 0 {
			shut.Store(false)
			continue
		}
		ok, err := tx.Wait(lossTimeout)
		shut.Store(false)
		if err != nil {
			return err
		}
		if ok {
			return errBusy
		}
		if got.Load() == before {
			lost = sent - before
		}
	}
}
