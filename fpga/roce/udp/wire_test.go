//go:build linux

package udp

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocelink/fpga/roce"
)

// tap is an Ethernet interface in a network namespace of its own, whose other
// end is the test: what a socket sends there is read frame by frame as a wire
// would carry it.
type tap struct {
	fd   int
	addr netip.Addr // ours; .2 is a neighbour whose MAC is known, .3 one that never answers
}

// listenOnTap makes a tap and a Conn bound to its address, both in a new
// namespace, and skips the test where that is not permitted.
// ROCELINK_REQUIRE_TOOLS=1 turns the skip into a failure.
func listenOnTap(t *testing.T, port uint16, cfg Config) (*Conn, *tap) {
	t.Helper()
	type result struct {
		c   *Conn
		tap *tap
		err error
	}
	done := make(chan result)
	go func() {
		// The thread is never unlocked, so it ends with the goroutine and
		// takes its namespace with it; descriptors made here keep theirs.
		runtime.LockOSThread()
		tp, err := makeTap()
		if err != nil {
			done <- result{err: err}
			return
		}
		c, err := Listen(netip.AddrPortFrom(tp.addr, port), cfg)
		done <- result{c, tp, err}
	}()
	r := <-done
	if r.tap != nil {
		t.Cleanup(func() { unix.Close(r.tap.fd) })
	}
	if r.err != nil {
		permitted := !errors.Is(r.err, unix.EPERM) && !errors.Is(r.err, unix.EACCES) &&
			!errors.Is(r.err, unix.ENOENT) && !errors.Is(r.err, unix.ENODEV)
		if permitted || os.Getenv("ROCELINK_REQUIRE_TOOLS") == "1" {
			t.Fatal(r.err)
		}
		t.Skipf("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and /dev/net/tun: %v", r.err)
	}
	t.Cleanup(func() { r.c.Close() })
	return r.c, r.tap
}

// makeTap moves the thread to a new namespace and makes the interface there.
func makeTap() (*tap, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, os.NewSyscallError("unshare", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("open /dev/net/tun", err)
	}
	tp := &tap{fd: fd, addr: netip.MustParseAddr("192.0.2.1")}
	if err := tp.configure(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return tp, nil
}

func (tp *tap) configure() error {
	const name = "rl0"
	ctl, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(ctl)
	ifreq := func() *unix.Ifreq {
		r, err := unix.NewIfreq(name)
		if err != nil {
			panic(err)
		}
		return r
	}
	r := ifreq()
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tp.fd, unix.TUNSETIFF, r); err != nil {
		return os.NewSyscallError("TUNSETIFF", err)
	}
	for _, step := range []struct {
		name string
		req  uint
		set  func(r *unix.Ifreq) error
	}{
		{"SIOCSIFADDR", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(tp.addr.AsSlice()) }},
		{"SIOCSIFNETMASK", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		{"SIOCSIFMTU", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(4200); return nil }},
		{"SIOCSIFFLAGS", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		r := ifreq()
		if err := step.set(r); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(ctl, step.req, r); err != nil {
			return os.NewSyscallError(step.name, err)
		}
	}
	// struct arpreq of linux/if_arp.h.
	type arpreq struct {
		pa, ha [16]byte
		flags  int32
		mask   [16]byte
		dev    [16]byte
	}
	const complete, permanent = 2, 4 // ATF_COM, ATF_PERM
	w := arpreq{flags: complete | permanent}
	neighbour, err := makeSockaddr(netip.MustParseAddrPort("192.0.2.2:0"), false)
	if err != nil {
		return err
	}
	copy(w.pa[:], neighbour.raw[:])
	*(*uint16)(unsafe.Pointer(&w.ha)) = unix.ARPHRD_ETHER
	copy(w.ha[2:], neighbourMAC[:])
	copy(w.dev[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ctl), unix.SIOCSARP, uintptr(unsafe.Pointer(&w))); errno != 0 {
		return os.NewSyscallError("SIOCSARP", errno)
	}
	return nil
}

var neighbourMAC = roce.MAC{2, 0, 0, 0, 0, 2}

// frames returns the next n RoCE frames.
func (tp *tap) frames(t *testing.T, n int) (frames []roce.Frame, raw [][]byte) {
	t.Helper()
	for len(frames) < n {
		b := make([]byte, 1<<16)
		k, err := unix.Read(tp.fd, b)
		if err == unix.EAGAIN {
			fds := []unix.PollFd{{Fd: int32(tp.fd), Events: unix.POLLIN}}
			if err := poll(fds, 5*time.Second); err != nil || fds[0].Revents == 0 {
				t.Fatalf("%d of %d frames on the wire: %v", len(frames), n, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var f roce.Frame
		if err := f.Decode(b[:k]); err == roce.ErrNotRoCE {
			continue // router solicitations and the like
		} else if err != nil {
			t.Fatalf("frame %d: %v", len(frames), err)
		}
		frames = append(frames, f)
		raw = append(raw, b[:k])
	}
	return frames, raw
}

// queueSends puts n packets with right ICRCs in a queue, PSN by PSN.
func queueSends(t *testing.T, c *Conn, dst netip.AddrPort, n int) *SendQueue {
	t.Helper()
	q := c.NewSendQueue(n)
	flow := c.FlowTo(dst)
	for i := range n {
		p := roce.Packet{BTH: roce.BTH{Opcode: roce.SendOnly, PSN: roce.PSN(i)}, Payload: make([]byte, 4096)}
		b := make([]byte, p.Len())
		if _, err := p.Put(b); err != nil {
			t.Fatal(err)
		}
		flow.Seal(b)
		if !q.Add(dst, b) {
			t.Fatal("queue full")
		}
	}
	return q
}

// What package roce promises of the zero values in a Flow: identification 0,
// "don't fragment", and so an ICRC that a receiver of the whole frame accepts.
func TestIdentificationOnTheWire(t *testing.T) {
	c, tp := listenOnTap(t, roce.Port, Config{})
	dst := netip.MustParseAddrPort("192.0.2.2:4791")
	const n = 20
	sendAll(t, c, queueSends(t, c, dst, n))
	frames, raw := tp.frames(t, n)
	for i := range frames {
		f := &frames[i]
		if f.Flow.ID != 0 || f.Flow.MayFragment {
			t.Errorf("frame %d: identification %#x, may fragment %v", i, f.Flow.ID, f.Flow.MayFragment)
		}
		if !f.ICRCOK(raw[i]) {
			t.Errorf("frame %d: the ICRC does not fit the frame", i)
		}
		if f.Packet.PSN != roce.PSN(i) || f.Dst != neighbourMAC || f.Flow != c.FlowTo(dst) {
			t.Errorf("frame %d: %+v", i, f.Flow)
		}
	}
	if k := c.Counters(); k.Segmented != 0 {
		t.Errorf("%d buffers were cut towards another machine", k.Segmented)
	}
}

// Why offload is for addresses of this machine: where a buffer is cut into
// frames, they are numbered, and only the first has the ICRC that was sealed.
func TestSegmentsAreNumbered(t *testing.T) {
	c, tp := listenOnTap(t, roce.Port, Config{GSO: GSOAlways})
	if gso, _ := c.Offloads(); !gso {
		t.Skip("the kernel has no UDP_SEGMENT")
	}
	const n = 5
	sendAll(t, c, queueSends(t, c, netip.MustParseAddrPort("192.0.2.2:4791"), n))
	if k := c.Counters(); k.Segmented != 1 {
		t.Fatalf("%+v", k)
	}
	frames, raw := tp.frames(t, n)
	for i := range frames {
		if f := &frames[i]; f.Flow.ID != uint16(i) || f.ICRCOK(raw[i]) != (i == 0) || f.Packet.PSN != roce.PSN(i) {
			t.Errorf("frame %d: identification %d, ICRC %v", i, f.Flow.ID, f.ICRCOK(raw[i]))
		}
	}
}

// A full socket buffer is no error: Send says how far it came and the rest stays.
// Packets for a neighbour that never answers are held back and fill it.
func TestSendBufferFull(t *testing.T) {
	c, _ := listenOnTap(t, 0, Config{SendBuffer: 30000})
	q := queueSends(t, c, netip.MustParseAddrPort("192.0.2.3:4791"), 100)
	sent, err := c.Send(q)
	if err != nil || sent == 0 || sent == 100 || q.Len() != 100-sent {
		t.Fatalf("sent %d, %v, %d left", sent, err, q.Len())
	}
	if again, err := c.Send(q); again != 0 || err != nil || q.Len() != 100-sent {
		t.Errorf("sent again %d, %v, %d left", again, err, q.Len())
	}
	if ok, err := c.WaitSend(10 * time.Millisecond); ok || err != nil {
		t.Errorf("writable %v, %v", ok, err)
	}
	if k := c.Counters(); k.SendFull != 2 || k.SentPackets != uint64(sent) || k.SendErrors != 0 {
		t.Errorf("%+v", k)
	}
	// Close must not wait for it.
	done := make(chan struct{})
	go func() {
		c.WaitSend(-1)
		close(done)
	}()
	c.Close()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("still waiting to send")
	}
}

// A packet too long for the interface is refused, not fragmented.
func TestTooLongForTheInterface(t *testing.T) {
	c, tp := listenOnTap(t, roce.Port, Config{GSO: GSOAlways})
	dst := netip.MustParseAddrPort("192.0.2.2:4791")
	q := c.NewSendQueue(0)
	for range 4 {
		q.Add(dst, make([]byte, 5000))
	}
	ok := queueSends(t, c, dst, 1).packets[0].data
	q.Add(dst, ok)
	q.Add(dst, ok)
	sent, err := c.Send(q)
	if sent != 2 || !errors.Is(err, unix.EMSGSIZE) || q.Len() != 0 {
		t.Errorf("sent %d, %v, %d left", sent, err, q.Len())
	}
	if gso, _ := c.Offloads(); !gso {
		t.Error("the offload was blamed for the packets")
	}
	if k := c.Counters(); k.SendErrors != 4 {
		t.Errorf("%+v", k)
	}
	tp.frames(t, 2)
}
