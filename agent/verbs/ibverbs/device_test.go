//go:build linux && cgo && ibverbs

package ibverbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs/internal/double"
	"rocelink/fpga/pattern"
	"rocelink/fpga/roce"
)

// The tests of this file need a real device, as rdma_rxe makes one:
//
//	ROCELINK_RDMA_DEVICE   its name (rxe0)
//	ROCELINK_RDMA_ADDRESS  an address it has, if a certain one is expected
//	ROCELINK_RDMA_FLAP     1: its interface may be taken down and readdressed
func deviceName(t *testing.T) string {
	t.Helper()
	name := os.Getenv("ROCELINK_RDMA_DEVICE")
	if name == "" {
		t.Skip("no RDMA device: set ROCELINK_RDMA_DEVICE")
	}
	return name
}

func openReal(t *testing.T, name string) *device {
	t.Helper()
	d, err := New(Config{}).Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return d.(*device)
}

func TestDeviceOpen(t *testing.T) {
	name := deviceName(t)
	d := openReal(t, name)
	port, err := d.Port()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %+v", d.Name(), port)
	t.Logf("%+v", d.Attributes())
	t.Logf("counters %v", d.Counters())
	if d.Name() != name || !port.Active || !port.MTU.Valid() || !port.Address.IsValid() || port.MAC == [6]byte{} {
		t.Errorf("%s: %+v", d.Name(), port)
	}
	if a := d.Attributes(); a.MaxQP < 1 || a.MaxCQE < 1 || a.MaxQPReceives < 1 || a.MaxMR < 1 || a.MaxMRBytes < 1 {
		t.Errorf("%+v", a)
	}
	// What the kernel says of the entry that was chosen.
	attrs := fmt.Sprintf("/sys/class/infiniband/%s/ports/1", name)
	kind, err := os.ReadFile(fmt.Sprintf("%s/gid_attrs/types/%d", attrs, port.GIDIndex))
	if err != nil || strings.TrimSpace(string(kind)) != "RoCE v2" {
		t.Errorf("GID %d is of type %q, %v", port.GIDIndex, kind, err)
	}
	raw, err := os.ReadFile(fmt.Sprintf("%s/gids/%d", attrs, port.GIDIndex))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := netip.ParseAddr(strings.TrimSpace(string(raw))); err != nil || a.Unmap() != port.Address.WithZone("") {
		t.Errorf("GID %d is %s, the address %v, %v", port.GIDIndex, raw, port.Address, err)
	}
	want := port.Address.String()
	if s := os.Getenv("ROCELINK_RDMA_ADDRESS"); s != "" {
		want = s
	}
	for _, other := range []string{want, name + "@" + want, "auto@" + want} {
		o := openReal(t, other)
		if p, err := o.Port(); err != nil || p.Address.String() != want || o.Name() != name {
			t.Errorf("%s: %s, %+v, %v", other, o.Name(), p, err)
		}
	}
	if o := openReal(t, "auto"); o.Name() == "" {
		t.Error("auto opened a device without a name")
	}
	_, err = New(Config{}).Open("no-such-device")
	wantError(t, err, verbs.ErrNoDevice, name)
	_, err = New(Config{}).Open(name + "@240.0.0.1")
	wantError(t, err, verbs.ErrNoDevice, "no RoCE v2 GID for address 240.0.0.1", want)
}

// pair is two connected queue pairs of one device: ours and the peer's.
type pair struct {
	*rig
	port   verbs.PortAttributes
	peer   *rig
	nextID uint64
}

// half makes one end, in INIT.
func half(t *testing.T, d *device, receives, sends, bytes int) *rig {
	t.Helper()
	g := &rig{TB: t, dev: d}
	pd, err := d.AllocPD()
	g.must(err)
	g.pd = pd.(*domain)
	t.Cleanup(g.closeHalf)
	g.mem, err = verbs.AllocMemory(bytes, false)
	g.must(err)
	mr, err := pd.Register(g.mem, allAccess)
	g.must(err)
	g.mr = mr.(*region)
	cq, err := d.CreateCQ(receives + sends)
	g.must(err)
	g.cq = cq.(*completionQueue)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxReceives: receives, MaxSends: sends})
	g.must(err)
	g.qp = qp.(*queuePair)
	g.must(qp.Init(allAccess))
	return g
}

// closeHalf is close without the device.
func (g *rig) closeHalf() {
	all := g.closers()
	for _, c := range all[:len(all)-1] {
		if err := c.Close(); err != nil {
			g.Errorf("close %T: %v", c, err)
		}
	}
	if g.mem != nil {
		_ = g.mem.Free()
	}
}

// newPair makes both ends; connect joins them.
func newPair(t *testing.T, receives, bytes int) *pair {
	d := openReal(t, deviceName(t))
	port, err := d.Port()
	if err != nil {
		t.Fatal(err)
	}
	return &pair{rig: half(t, d, receives, 0, bytes), port: port, peer: half(t, d, 1, 16, bytes)}
}

func (p *pair) join() {
	p.Helper()
	to := func(from, to *rig, psn, ours roce.PSN) {
		p.must(from.qp.ReadyToReceive(verbs.PeerAttributes{QPN: to.qp.qpn, PSN: psn, Address: p.port.Address, MAC: p.port.MAC, MTU: p.port.MTU, MinRNRTimer: 12, MaxReads: 4}))
		p.must(from.qp.ReadyToSend(ours))
	}
	to(p.rig, p.peer, 0xfffffe, 0x1234) // wraps soon
	to(p.peer, p.rig, 0x1234, 0xfffffe)
}

// request has the peer make a request and waits for its end. READ reads into
// the beginning of the peer's memory.
func (p *pair) request(opcode int, data []byte, remote uint64, imm uint32) verbs.Status {
	p.Helper()
	p.start(opcode, data, len(data), remote, p.mr.RKey(), imm)
	return p.finish()
}

func (p *pair) start(opcode int, data []byte, length int, remote uint64, rkey uint32, imm uint32) {
	p.Helper()
	copy(p.peer.mem.Bytes(), data)
	p.nextID++
	p.must(double.PostSend(p.peer.qp.Raw(), opcode, p.peer.mr.Address(), uint32(length), p.peer.mr.LKey(), remote, rkey, imm, p.nextID))
}

// ended reports whether the request has ended within a time, and how.
func (p *pair) ended(within time.Duration) (verbs.Status, bool) {
	p.Helper()
	wcs := make([]verbs.WorkCompletion, 1)
	for end := time.Now().Add(within); ; {
		p.must(p.peer.cq.Arm())
		n, err := p.peer.cq.Poll(wcs)
		p.must(err)
		if n == 1 {
			if wcs[0].ID != p.nextID || wcs[0].QPN != p.peer.qpn() {
				p.Fatalf("completion %+v, want that of request %d", wcs[0], p.nextID)
			}
			return wcs[0].Status, true
		}
		left := time.Until(end)
		if left <= 0 {
			return 0, false
		}
		_, err = p.peer.cq.Wait(left)
		p.must(err)
	}
}

func (p *pair) finish() verbs.Status {
	p.Helper()
	s, ok := p.ended(limit)
	if !ok {
		p.Fatal("a request did not end")
	}
	return s
}

// realLoop runs a loop on our end.
func (p *pair) realLoop(c receive.Config) (*receive.Loop, chan error) {
	p.Helper()
	c.QP, c.CQ, c.Memory, c.LKey, c.Window = p.qp, p.cq, p.mem, p.mr.LKey(), 50*time.Millisecond
	loop, err := receive.New(c)
	p.must(err)
	p.must(loop.Prepare())
	p.join()
	ended := make(chan error, 1)
	go func() { ended <- loop.Run() }()
	return loop, ended
}

func await(t *testing.T, ended chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
		t.Fatal("the loop did not end")
	}
	panic("unreachable")
}

// TestDeviceLoop brings frames of all sizes to the receive loop with each verb.
func TestDeviceLoop(t *testing.T) {
	deviceName(t)
	const slots, frames = 16, 200
	d, err := New(Config{}).Open(deviceName(t))
	if err != nil {
		t.Fatal(err)
	}
	port, err := d.Port()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	mtu := int(port.MTU)
	for _, v := range streaming {
		for mode, m := range map[string]receive.Mode{"event": receive.Event, "busy": receive.Busy} {
			for _, size := range []int{1, 64, mtu - 1, mtu, mtu + 1, 3*mtu + 5, 65536} {
				t.Run(fmt.Sprintf("%s/%s/%d", v, mode, size), func(t *testing.T) {
					stride := (size + rocelink.TrailerBytes + 7) &^ 7
					p := newPair(t, slots, slots*stride+64)
					c := receive.Config{Verb: v, Slots: slots, Stride: uint32(stride), FrameBytes: uint32(size), Sink: verifying(), Mode: m}
					if v == rocelink.VerbWrite {
						c.CreditOffset = slots * stride
					}
					loop, ended := p.realLoop(c)
					data := make([]byte, size)
					credit := uint64(0)
					for q := range uint64(frames) {
						pattern.Fill(data, pattern.Counter, q)
						at := p.mr.Address() + q%slots*uint64(stride)
						status := verbs.Success
						switch v {
						case rocelink.VerbSend:
							status = p.request(double.Send, data, 0, 0)
						case rocelink.VerbSendImm:
							status = p.request(double.SendImm, data, 0, uint32(q))
						case rocelink.VerbWriteImm:
							status = p.request(double.WriteImm, data, at, uint32(q))
						case rocelink.VerbWrite:
							until(t, "the peer has credit", func() bool {
								if q < credit+slots {
									return true
								}
								if s := p.request(double.Read, make([]byte, 8), p.mr.Address()+slots*uint64(stride), 0); s != verbs.Success {
									t.Fatalf("READ of the credit word: %v", s)
								}
								credit = binary.LittleEndian.Uint64(p.peer.mem.Bytes())
								return false
							})
							status = p.request(double.Write, data, at, 0)
							var trailer [rocelink.TrailerBytes]byte
							binary.LittleEndian.PutUint32(trailer[:], uint32(size))
							binary.LittleEndian.PutUint64(trailer[8:], q+1)
							if status == verbs.Success {
								status = p.request(double.Write, trailer[:], at+uint64(stride)-rocelink.TrailerBytes, 0)
							}
						}
						if status != verbs.Success {
							t.Fatalf("frame %d: %v", q, status)
						}
					}
					until(t, "all frames were seen", func() bool { return loop.Totals().Messages == frames })
					loop.Stop()
					p.must(p.qp.SetError())
					if err := await(t, ended); err != nil {
						t.Error(err)
					}
					total := loop.Totals()
					flushed := map[rocelink.Verb]int{rocelink.VerbSend: slots, rocelink.VerbSendImm: slots, rocelink.VerbWriteImm: slots - 1}[v]
					want := rocelink.Totals{Messages: frames, Bytes: rocelink.Count(frames * size), Accepted: frames, Verified: frames, Flushed: rocelink.Count(flushed)}
					if total != want {
						t.Errorf("totals\n%+v, want\n%+v", total, want)
					}
				})
			}
		}
	}
}

// TestDeviceRead: the peer reads what the loop filled in.
func TestDeviceRead(t *testing.T) {
	const slots, size = 16, 5000
	p := newPair(t, slots, slots*size)
	loop, ended := p.realLoop(receive.Config{Verb: rocelink.VerbRead, Slots: slots, Stride: size, FrameBytes: size, Pattern: pattern.PRBS31, CRC: true, Sink: sink.Discard{}})
	for q := range uint64(3 * slots) {
		if s := p.request(double.Read, make([]byte, size), p.mr.Address()+q%slots*size, 0); s != verbs.Success {
			t.Fatalf("READ %d: %v", q, s)
		}
		at := q % slots * size
		if !pattern.CheckCRC(p.peer.mem.Bytes()[:size]) || !bytes.Equal(p.peer.mem.Bytes()[:size], p.mem.Bytes()[at:at+size]) {
			t.Fatalf("READ %d: not what is there", q)
		}
	}
	loop.Stop()
	p.must(p.qp.SetError())
	if err := await(t, ended); err != nil {
		t.Error(err)
	}
}

// TestDeviceRNR: a consumer that keeps its slots holds the peer up; when it lets
// go the peer goes on, with nothing lost.
func TestDeviceRNR(t *testing.T) {
	const slots, size = 4, 64
	kept := make(chan receive.Frame, slots)
	p := newPair(t, slots, slots*size)
	loop, ended := p.realLoop(receive.Config{Verb: rocelink.VerbSend, Slots: slots, Stride: size, FrameBytes: size, Sink: sink.Func(func(f *receive.Frame) receive.Verdict {
		kept <- *f
		return receive.Kept
	})})
	for range slots {
		if s := p.request(double.Send, make([]byte, size), 0, 0); s != verbs.Success {
			t.Fatal(s)
		}
	}
	p.start(double.Send, nil, size, 0, 0, 0)
	if s, ok := p.ended(50 * time.Millisecond); ok {
		t.Fatalf("a SEND without receive ended: %v", s)
	}
	for range slots {
		(<-kept).Release()
	}
	if s := p.finish(); s != verbs.Success {
		t.Fatal(s)
	}
	(<-kept).Release()
	loop.Stop()
	p.must(p.qp.SetError())
	if err := await(t, ended); err != nil {
		t.Error(err)
	}
	if n := loop.Totals().Messages; n != slots+1 {
		t.Errorf("%d messages", n)
	}
}

// TestDeviceLengthError: a frame longer than the slot ends the loop with that
// cause, and the peer learns of it.
func TestDeviceLengthError(t *testing.T) {
	const slots, size = 4, 64
	p := newPair(t, slots, slots*size)
	loop, ended := p.realLoop(receive.Config{Verb: rocelink.VerbSend, Slots: slots, Stride: size, FrameBytes: size, Sink: sink.Discard{}})
	if s := p.request(double.Send, make([]byte, size+1), 0, 0); s == verbs.Success {
		t.Error("a SEND that does not fit succeeded")
	} else {
		t.Logf("the peer: %v", s)
	}
	err := await(t, ended)
	t.Log(err)
	// rdma_rxe of Linux 6.1 calls it a malformed work request.
	if !errors.Is(err, &receive.CompletionError{Status: verbs.LocalLengthError}) && !errors.Is(err, &receive.CompletionError{Status: verbs.LocalQPOperationError}) ||
		errors.Is(err, receive.ErrNotDrained) {
		t.Error(err)
	}
	if total := loop.Totals(); total.Messages != 0 || total.Errors != 1 || total.Flushed != slots-1 {
		t.Errorf("%+v", total)
	}
}

// TestDeviceAccessError: what is outside the region or not permitted is refused,
// and nothing is written.
func TestDeviceAccessError(t *testing.T) {
	const slots, size = 4, 64
	for name, c := range map[string]struct {
		opcode int
		rkey   func(uint32) uint32
		at     uint64
	}{
		"wrong rkey":          {double.Write, func(k uint32) uint32 { return k ^ 0x5a }, 0},
		"one byte beyond":     {double.Write, func(k uint32) uint32 { return k }, slots*size - size + 1},
		"READ one byte after": {double.Read, func(k uint32) uint32 { return k }, slots*size - size + 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, slots, slots*size)
			loop, ended := p.realLoop(receive.Config{Verb: rocelink.VerbSend, Slots: slots, Stride: size, FrameBytes: size, Sink: sink.Discard{}})
			p.start(c.opcode, bytes.Repeat([]byte{0xff}, size), size, p.mr.Address()+c.at, c.rkey(p.mr.RKey()), 0)
			if s := p.finish(); s != verbs.RemoteAccessError {
				t.Errorf("the peer: %v, want remote access error", s)
			}
			if !bytes.Equal(p.mem.Bytes(), make([]byte, slots*size)) {
				t.Error("memory was written")
			}
			loop.Stop()
			p.must(p.qp.SetError())
			// Whether the queue pair went to error by itself is up to the device.
			if err := await(t, ended); errors.Is(err, receive.ErrNotDrained) {
				t.Error(err)
			}
		})
	}
}

// TestDeviceRestarts: four sessions in a row.
func TestDeviceRestarts(t *testing.T) {
	for range 4 {
		p := newPair(t, 8, 8*64)
		loop, ended := p.realLoop(receive.Config{Verb: rocelink.VerbSend, Slots: 8, Stride: 64, FrameBytes: 64, Sink: verifying()})
		data := make([]byte, 64)
		for q := range uint64(50) {
			pattern.Fill(data, pattern.Counter, q)
			if s := p.request(double.Send, data, 0, 0); s != verbs.Success {
				t.Fatal(s)
			}
		}
		until(t, "all frames were seen", func() bool { return loop.Totals().Verified == 50 })
		loop.Stop()
		p.must(p.qp.SetError())
		if err := await(t, ended); err != nil {
			t.Error(err)
		}
	}
}

// command runs a program of the system.
func command(t *testing.T, args string) {
	t.Helper()
	words := strings.Fields(args)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", args, err, out)
	}
}

// TestDeviceFlap takes the interface down and up, and its address away and back:
// the events tell, and the port says what is.
func TestDeviceFlap(t *testing.T) {
	name := deviceName(t)
	if os.Getenv("ROCELINK_RDMA_FLAP") != "1" {
		t.Skip("the interface may not be touched: set ROCELINK_RDMA_FLAP=1")
	}
	g := &rig{TB: t, dev: openReal(t, name)}
	before, err := g.dev.Port()
	g.must(err)
	g.dev.mu.Lock()
	netdev := g.dev.selected.netdev.name
	g.dev.mu.Unlock()
	want := func(k verbs.EventKind) {
		t.Helper()
		if e := g.event(); e.Kind != k {
			t.Errorf("%+v, want %v", e, k)
		} else {
			t.Log(e.Cause)
		}
	}
	address := func(is netip.Addr, active bool) {
		t.Helper()
		if p, err := g.dev.Port(); err != nil || p.Active != active || is.IsValid() && p.Address != is {
			t.Errorf("port %+v, %v; want %v, active %v", p, err, is, active)
		}
	}
	command(t, "ip link set "+netdev+" down")
	want(verbs.EventPortDown)
	address(netip.Addr{}, false)
	command(t, "ip link set "+netdev+" up")
	want(verbs.EventPortActive)
	address(before.Address, true)

	other := netip.MustParseAddr("198.18.7.2")
	command(t, "ip addr add "+other.String()+"/24 dev "+netdev)
	address(before.Address, true)
	command(t, "ip addr del "+before.Address.String()+"/24 dev "+netdev)
	want(verbs.EventGIDChange)
	address(other, true)
	command(t, "ip addr add "+before.Address.String()+"/24 dev "+netdev)
	command(t, "ip addr del "+other.String()+"/24 dev "+netdev)
	want(verbs.EventGIDChange)
	address(before.Address, true)
}

// TestDeviceCounters: the counters of the port and the driver, after
// traffic.
func TestDeviceCounters(t *testing.T) {
	d := openReal(t, deviceName(t))
	for name, v := range d.Counters() {
		if name == "" || strings.ContainsAny(name, " /\n") || name == "lifespan" || name == "port_rcv_data" {
			t.Errorf("counter %q is %d", name, v)
		}
	}
}
