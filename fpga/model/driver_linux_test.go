package model

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

// loopback returns address n of this process in 127.41.0.0/16, where several
// runs of these tests do not meet.
func loopback(n int) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, 41, byte(pid >> 4), byte(pid<<4) | byte(n)})
}

// socketHost answers on a real socket.
func socketHost(t testing.TB, h *host) {
	t.Helper()
	c, err := udp.Listen(netip.AddrPortFrom(h.addr, roce.Port), udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		batch, queue := c.NewBatch(0), c.NewSendQueue(0)
		for {
			n, err := c.Receive(batch)
			if err != nil {
				done <- err
				return
			}
			for i := range n {
				b, src := batch.Packet(i)
				for _, p := range h.handle(Datagram{Src: src, Dst: c.LocalAddr(), Payload: b}) {
					out := make([]byte, p.Len())
					if _, err := p.Put(out); err != nil {
						done <- err
						return
					}
					flow := c.FlowTo(src)
					flow.Seal(out)
					for !queue.Add(src, out) {
						if _, err := c.Send(queue); err != nil {
							done <- err
							return
						}
					}
				}
			}
			if _, err := c.Send(queue); err != nil {
				done <- err
				return
			}
			if n == 0 {
				if _, err := c.Wait(-1); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		c.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// live is a world in real time over sockets; only what talks to registers is
// of use.
func live(t testing.TB, cfg Config, d DriverConfig, bus func(f *Fabric) regs.Bus) *world {
	t.Helper()
	drv, err := NewDriver(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- drv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, f: drv.Fabric(), host: &host{addr: loopback(2), qps: map[roce.QPN]*hostQP{}}}
	b := bus(drv.Fabric())
	w.core, w.stream, w.cmac = regs.At(b, CoreBase), regs.At(b, StreamBase), regs.At(b, CMACBase)
	w.bringUp()
	w.address(regs.CoreLocalIP0, loopback(1))
	return w
}

func inProcess(f *Fabric) regs.Bus { return f.Bus() }

// finish waits for the stream to stop in real time.
func (w *world) finish(index int) {
	w.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for w.streamState(index) < regs.StreamStatStateStateStopped {
		select {
		case <-look.C:
		case <-deadline.C:
			_, cause := w.qpState(index)
			w.t.Fatalf("the stream does not stop: state %d, cause %d, %d of its frames done", w.streamState(index), cause,
				w.read64(w.stream, regs.StreamStatFramesDone))
		}
	}
}

// All verbs over real sockets, with and without faults.
func TestDriver(t *testing.T) {
	for _, faults := range []FaultConfig{{}, {Drop: 1, Duplicate: 1, Reorder: 1, Corrupt: 1, Delay: 1, Seed: 5}} {
		for verb := uint32(regs.StreamConfigVerbSend); verb <= regs.StreamConfigVerbRead; verb++ {
			t.Run(fmt.Sprintf("%s/%v", verbName(verb), faults.Active()), func(t *testing.T) {
				var file bytes.Buffer
				frames := 0
				t.Cleanup(func() {
					if frames = pcapFrames(t, &file); frames < 1000 {
						t.Errorf("%d frames captured", frames)
					}
				})
				w := live(t, Config{MaxWindow: 64}, DriverConfig{Faults: faults, Capture: &file}, inProcess)
				s := streamSettings{verb: verb, size: 20000, count: 500, crc: true}
				q := defaults()
				q.mtu = 4096
				q.timeout = 14
				hq, _ := w.session(q, s)
				socketHost(t, w.host)
				w.finish(0)
				if done := w.streamStat(0, regs.StreamStatFramesDone); done != s.count {
					_, cause := w.qpState(0)
					t.Errorf("%d frames of %d, cause %d", done, s.count, cause)
				}
				if hq.err != nil {
					t.Error(hq.err)
				}
			})
		}
	}
}

// pcapFrames reads a capture, wants right ICRCs but for a few, and returns how
// many frames there are.
func pcapFrames(t *testing.T, r io.Reader) (n int) {
	t.Helper()
	var h [24]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		t.Fatal(err)
	}
	bad := 0
	for {
		var h [16]byte
		if _, err := io.ReadFull(r, h[:]); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.LittleEndian.Uint32(h[8:]))
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		var f roce.Frame
		f.Decode(b) // what is corrupt may well be malformed
		if !f.ICRCOK(b) {
			bad++
		}
		n++
	}
	if bad > n/20 {
		t.Errorf("%d of %d frames captured have a wrong ICRC", bad, n)
	}
	return n
}

// An address that cannot be bound is seen in TxDropped.
func TestDriverCannotBind(t *testing.T) {
	w := live(t, Config{}, DriverConfig{}, inProcess)
	w.address(regs.CoreLocalIP0, netip.MustParseAddr("198.51.100.1"))
	q := defaults()
	q.timeout, q.retries = 8, 1
	w.session(q, streamSettings{size: 100, count: 1})
	w.finish(0)
	if n := w.stat(0, regs.CoreTxDropped); n == 0 || w.stat(0, regs.CoreTxPackets) != 0 {
		t.Errorf("%d frames dropped, %d sent", n, w.stat(0, regs.CoreTxPackets))
	}
	if _, cause := w.qpState(0); cause != regs.CoreStatStateCauseRetryExceeded {
		t.Errorf("cause %d", cause)
	}
}

// client is a bus as boardd's is: a mapping of the file, nothing more.
type client struct{ mem aperture }

func (c client) Read32(o uint32) (uint32, error)  { return c.mem.load(o), nil }
func (c client) Write32(o uint32, v uint32) error { c.mem.store(o, v); return nil }

func openClient(t *testing.T, path string) client {
	t.Helper()
	m := mapFile(t, path)
	return client{m}
}

// A driver that has nothing but the file runs a session, over a restart of the
// fabric and with its mapping kept.
func TestSharedFile(t *testing.T) {
	parent := t
	path := filepath.Join(t.TempDir(), "registers")
	var c client
	var boots [2]uint32
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			shared, err := OpenShared(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { shared.Close() })
			if _, err := OpenShared(path); !errors.Is(err, ErrServed) {
				t.Errorf("a second fabric on the file: %v", err)
			}
			if i == 0 {
				c = openClient(parent, path)
				if v, _ := regs.CoreIdent.Read(c); v != 0 {
					t.Errorf("identity %#x before the fabric starts", v)
				}
			}
			w := live(t, Config{Registers: shared.Registers(), MaxWindow: 64}, DriverConfig{}, func(*Fabric) regs.Bus { return c })
			w.polled = true
			boots[i] = w.read(w.core, regs.CoreBoot)
			if v := w.read(w.core, regs.CoreIdent); v != regs.IdentCore {
				t.Fatalf("identity %#x", v)
			}
			if next := w.read(w.core, regs.CoreNext); next != StreamBase {
				t.Errorf("next block at %#x", next)
			}
			s := streamSettings{size: 20000, count: 300}
			q := defaults()
			q.mtu = 4096
			hq, _ := w.session(q, s)
			socketHost(t, w.host)
			w.finish(0)
			if done := w.streamStat(0, regs.StreamStatFramesDone); done != s.count || hq.err != nil {
				t.Errorf("%d frames of %d: %v", done, s.count, hq.err)
			}
			if v := w.read(w.cmac, regs.CMACStatRx); v != 3 {
				t.Errorf("CMAC receive status %#x", v)
			}
			w.write(w.cmac, regs.CMACTick, 1)
			w.settled("tick", func() bool { return w.read(w.cmac, regs.CMACTick) == 0 })
			if n := w.read64(w.cmac, regs.CMACTxPackets); n < 300*5 {
				t.Errorf("the MAC sent %d frames", n)
			}
		})
		if v, _ := regs.CoreIdent.Read(c); v != 0 {
			t.Errorf("identity %#x after the fabric has ended", v)
		}
	}
	if boots[0] == boots[1] || boots[0] == 0 {
		t.Errorf("boot identifiers %#x and %#x", boots[0], boots[1])
	}
}
