package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"rocelink/fpga/roce"
)

// Conn is a socket that carries RoCE v2 packets. See the package comment for
// which goroutine may call what.
type Conn struct {
	fd, wakeFD, closeFD int
	local               netip.AddrPort
	v6                  bool
	gsoMode             GSO
	gso                 atomic.Bool // the kernel has it and it works
	gro                 bool
	rcvbuf, sndbuf      int

	// use counts the calls that are using the descriptors; closing is added
	// to it once, and whoever brings it to closing alone closes them.
	use    atomic.Int64
	closed chan struct{}

	counters  counters
	dropsMu   sync.Mutex
	drops     uint64
	lastDrops uint32
}

// closing is more than any number of calls at a time.
const closing = 1 << 32

// Listen opens a socket on one address of this machine. Port 0 picks a free
// one. The address must be a definite one, because the ICRC covers it.
//
// What is wrong can be told by errors.Is: ErrAddress, or the system's error,
// such as EADDRINUSE.
func Listen(local netip.AddrPort, cfg Config) (*Conn, error) {
	ip := local.Addr().Unmap()
	if !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
		return nil, fmt.Errorf("%w: listen on %v: name one address of this machine, the ICRC covers it",
			ErrAddress, local)
	}
	c := &Conn{
		fd: -1, wakeFD: -1, closeFD: -1,
		v6:      ip.Is6(),
		gsoMode: cfg.GSO,
		closed:  make(chan struct{}),
	}
	if err := c.open(netip.AddrPortFrom(ip, local.Port()), cfg); err != nil {
		c.closeFDs()
		return nil, err
	}
	return c, nil
}

// open does the steps of Listen; the caller closes what was opened.
func (c *Conn) open(local netip.AddrPort, cfg Config) error {
	name, err := makeSockaddr(local, c.v6)
	if err != nil {
		return fmt.Errorf("roce/udp: listen on %v: %w", local, err)
	}
	family := unix.AF_INET
	if c.v6 {
		family = unix.AF_INET6
	}
	c.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		c.fd = -1
		return fmt.Errorf("roce/udp: open socket: %w", err)
	}
	for _, o := range []struct {
		name              string
		v6                bool
		level, opt, value int
	}{
		{"IP_MTU_DISCOVER", false, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO},
		{"IPV6_MTU_DISCOVER", true, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO},
		{"IPV6_V6ONLY", true, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
		{"UDP_NO_CHECK6_RX", true, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1},
	} {
		if o.v6 != c.v6 {
			continue
		}
		if err := unix.SetsockoptInt(c.fd, o.level, o.opt, o.value); err != nil {
			return fmt.Errorf("roce/udp: set %s to %d: %w", o.name, o.value, err)
		}
	}
	if c.rcvbuf, err = c.setBuffer(cfg.ReceiveBuffer, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF); err != nil {
		return fmt.Errorf("roce/udp: set receive buffer: %w", err)
	}
	if c.sndbuf, err = c.setBuffer(cfg.SendBuffer, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF); err != nil {
		return fmt.Errorf("roce/udp: set send buffer: %w", err)
	}
	// Linux 5.0 has both offloads; an older kernel does without.
	if !cfg.NoGRO {
		c.gro = unix.SetsockoptInt(c.fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil
	}
	if cfg.GSO != GSONever {
		_, err := unix.GetsockoptInt(c.fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		c.gso.Store(err == nil)
	}
	if err := bind(c.fd, &name); err != nil {
		return bindError(local, err)
	}
	if c.local, err = socketName(c.fd); err != nil {
		return fmt.Errorf("roce/udp: name of the socket on %v: %w", local, err)
	}
	if c.wakeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		c.wakeFD = -1
		return fmt.Errorf("roce/udp: open eventfd: %w", err)
	}
	if c.closeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		c.closeFD = -1
		return fmt.Errorf("roce/udp: open eventfd: %w", err)
	}
	return nil
}

// bindError says what to do about a bind that failed.
func bindError(local netip.AddrPort, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		hint = fmt.Sprintf(": another program, or the kernel's rdma_rxe, has it; `ss -ulpn sport = :%d` names it", local.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		hint = ": no interface has this address; see `ip address`"
	case errors.Is(err, unix.EACCES):
		hint = ": ports below 1024 need CAP_NET_BIND_SERVICE"
	}
	return fmt.Errorf("roce/udp: listen on %v: %w%s", local, err, hint)
}

// setBuffer asks for a buffer, past the system's limit if it is allowed to, and
// returns what it got.
func (c *Conn) setBuffer(want, force, plain int) (int, error) {
	if want <= 0 {
		want = DefaultBuffer
	}
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, force, want) != nil {
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, plain, want); err != nil {
			return 0, fmt.Errorf("%d bytes: %w", want, err)
		}
	}
	got, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, plain)
	// The kernel doubles what is asked for, to account for its own overhead,
	// and reports the double (socket(7)).
	return got / 2, err
}

func bind(fd int, name *sockaddr) error {
	_, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&name.raw)), uintptr(name.len))
	if errno != 0 {
		return errno
	}
	return nil
}

func socketName(fd int) (netip.AddrPort, error) {
	var s sockaddr
	s.len = uint32(len(s.raw))
	_, _, errno := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd),
		uintptr(unsafe.Pointer(&s.raw)), uintptr(unsafe.Pointer(&s.len)))
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	return s.addrPort(), nil
}

// LocalAddr returns the address that the socket is bound to.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// FlowTo returns what the ICRC of a packet from here to dst covers.
func (c *Conn) FlowTo(dst netip.AddrPort) roce.Flow {
	return roce.Flow{Src: c.local.Addr(), Dst: dst.Addr(), SrcPort: c.local.Port()}
}

// FlowFrom returns what the ICRC of a packet from src to here covers.
func (c *Conn) FlowFrom(src netip.AddrPort) roce.Flow {
	return roce.Flow{Src: src.Addr(), Dst: c.local.Addr(), SrcPort: src.Port()}
}

// Buffers returns the socket buffers that the system granted, in bytes.
func (c *Conn) Buffers() (receive, send int) { return c.rcvbuf, c.sndbuf }

// Offloads reports whether runs of packets can leave and arrive as one buffer.
// GSO turns false if the kernel refuses it later.
func (c *Conn) Offloads() (gso, gro bool) { return c.gso.Load(), c.gro }

// Counters returns the totals so far.
func (c *Conn) Counters() Counters {
	k := c.counters.read()
	c.dropsMu.Lock()
	defer c.dropsMu.Unlock()
	if c.enter() == nil {
		if now, err := memDrops(c.fd); err == nil {
			c.drops += uint64(now - c.lastDrops)
			c.lastDrops = now
		}
		c.leave()
	}
	k.KernelDropped = c.drops
	return k
}

// memDrops returns the kernel's count of datagrams it dropped for a socket: the
// ninth word of SO_MEMINFO (SK_MEMINFO_DROPS in linux/sock_diag.h). Unlike
// SO_RXQ_OVFL it costs nothing on the data path.
func memDrops(fd int) (uint32, error) {
	const drops = 8
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return info[drops], nil
}

// enter keeps the descriptors open until leave.
func (c *Conn) enter() error {
	for {
		n := c.use.Load()
		if n >= closing {
			return net.ErrClosed
		}
		if c.use.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (c *Conn) leave() {
	if c.use.Add(-1) == closing {
		c.closeFDs()
		close(c.closed)
	}
}

// Close wakes whoever waits, waits for calls under way, none of which can
// block, and frees the address. Calls after it return net.ErrClosed. Closing
// twice is the same as once.
func (c *Conn) Close() error {
	for {
		n := c.use.Load()
		if n >= closing {
			break
		}
		// The extra user is this call: the descriptors stay open for the
		// signal below.
		if c.use.CompareAndSwap(n, n+closing+1) {
			signal(c.closeFD)
			c.leave()
			break
		}
	}
	<-c.closed
	return nil
}

func (c *Conn) closeFDs() {
	for _, fd := range []int{c.fd, c.wakeFD, c.closeFD} {
		if fd >= 0 {
			unix.Close(fd) // nothing was buffered: there is nothing to lose
		}
	}
}

// Wake makes the Wait under way, or else the next, return at once.
func (c *Conn) Wake() {
	if c.enter() != nil {
		return
	}
	signal(c.wakeFD)
	c.leave()
}

// signal adds one to an eventfd.
func signal(fd int) {
	one := uint64(1)
	b := (*[8]byte)(unsafe.Pointer(&one))
	for {
		// EAGAIN means that the counter is full: it is signalled.
		if _, err := unix.Write(fd, b[:]); err != unix.EINTR {
			return
		}
	}
}

// Wait waits until there is something to receive, Wake is called, or the time
// is up: readable says whether it was the first. A negative timeout never ends,
// 0 only looks. It returns net.ErrClosed when the Conn is closed meanwhile.
func (c *Conn) Wait(timeout time.Duration) (readable bool, err error) {
	if err := c.enter(); err != nil {
		return false, err
	}
	defer c.leave()
	fds := [...]unix.PollFd{
		{Fd: int32(c.fd), Events: unix.POLLIN},
		{Fd: int32(c.closeFD), Events: unix.POLLIN},
		{Fd: int32(c.wakeFD), Events: unix.POLLIN},
	}
	if err := poll(fds[:], timeout); err != nil {
		return false, fmt.Errorf("roce/udp: wait to receive: %w", err)
	}
	if fds[1].Revents != 0 {
		return false, net.ErrClosed
	}
	if fds[2].Revents != 0 {
		var b [8]byte
		unix.Read(c.wakeFD, b[:]) // cannot block, and only this side reads
	}
	// POLLERR too: Receive collects the error.
	return fds[0].Revents != 0, nil
}

// WaitSend waits until the socket buffer has room again, or the time is up, as
// in Wait. Wake does not end it, Close does.
func (c *Conn) WaitSend(timeout time.Duration) (writable bool, err error) {
	if err := c.enter(); err != nil {
		return false, err
	}
	defer c.leave()
	fds := [...]unix.PollFd{
		{Fd: int32(c.fd), Events: unix.POLLOUT},
		{Fd: int32(c.closeFD), Events: unix.POLLIN},
	}
	if err := poll(fds[:], timeout); err != nil {
		return false, fmt.Errorf("roce/udp: wait to send: %w", err)
	}
	if fds[1].Revents != 0 {
		return false, net.ErrClosed
	}
	return fds[0].Revents != 0, nil
}

// poll is ppoll that goes on after a signal, of which Go's scheduler sends many.
func poll(fds []unix.PollFd, timeout time.Duration) error {
	var end time.Time
	if timeout > 0 {
		end = time.Now().Add(timeout)
	}
	for {
		var ts *unix.Timespec
		if timeout >= 0 {
			t := unix.NsecToTimespec(max(timeout, 0).Nanoseconds())
			ts = &t
		}
		_, err := unix.Ppoll(fds, ts, nil)
		if err != unix.EINTR {
			return err
		}
		if timeout > 0 {
			timeout = max(time.Until(end), 0)
		}
	}
}

// batchSys is what recvmmsg needs beside the buffers.
type batchSys struct {
	conn    *Conn
	headers []unix.Mmsghdr
	iovecs  []unix.Iovec
	names   []sockaddr
	control [][controlWords]uint64
	last    []sockaddr // what sources was made from
	buffers []byte
	slot    int // bytes a slot
	used    int // headers to be made good before the next call
}

// controlWords has room for one control message with an int, and is aligned.
const controlWords = 4

// NewBatch returns the memory for one Receive: as many datagrams, or buffers of
// datagrams with GRO, as slots says, a sensible number if 0.
func (c *Conn) NewBatch(slots int) *Batch {
	size := slotBytes
	if c.gro {
		size = slotBytesGRO
	}
	if slots <= 0 {
		slots = defaultSlots
		if c.gro {
			slots = defaultSlotsGRO
		}
	}
	b := &Batch{
		sources: make([]netip.AddrPort, slots),
		sys: batchSys{
			conn:    c,
			headers: make([]unix.Mmsghdr, slots),
			iovecs:  make([]unix.Iovec, slots),
			names:   make([]sockaddr, slots),
			control: make([][controlWords]uint64, slots),
			last:    make([]sockaddr, slots),
			buffers: make([]byte, slots*size),
			slot:    size,
			used:    slots,
		},
	}
	packets := slots
	if c.gro {
		packets = slots * maxSegments
	}
	b.packets = make([]packetRef, 0, packets)
	s := &b.sys
	for i := range s.headers {
		s.iovecs[i].Base = &s.buffers[i*size]
		s.iovecs[i].SetLen(size)
		h := &s.headers[i].Hdr
		h.Name = &s.names[i].raw[0]
		h.Iov = &s.iovecs[i]
		h.SetIovlen(1)
		if c.gro {
			h.Control = (*byte)(unsafe.Pointer(&s.control[i]))
		}
	}
	return b
}

// Receive fills b with what has arrived and returns how many packets that is.
// It never waits: 0 without an error means that there was nothing.
func (c *Conn) Receive(b *Batch) (int, error) {
	b.packets = b.packets[:0]
	if err := c.enter(); err != nil {
		return 0, err
	}
	defer c.leave()
	s := &b.sys
	if s.conn != c {
		return 0, fmt.Errorf("%w: the batch is of another socket", ErrAddress)
	}
	for i := range s.headers[:s.used] {
		h := &s.headers[i].Hdr
		h.Namelen = uint32(len(s.names[i].raw))
		h.Flags = 0
		if h.Control != nil {
			h.SetControllen(controlWords * 8)
		}
	}
	s.used = 0
	for tries := 0; ; tries++ {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&s.headers[0])),
			uintptr(len(s.headers)), unix.MSG_DONTWAIT, 0, 0)
		c.counters.rxCalls.Add(1)
		switch errno {
		case 0:
			s.used = int(n)
			c.take(b)
			return len(b.packets), nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR:
			tries--
		case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EPROTO, unix.EMSGSIZE:
			// What ICMP said about something sent before, reported once each.
			if tries > len(s.headers) {
				return 0, nil
			}
		default:
			return 0, fmt.Errorf("roce/udp: receive on %v: %w", c.local, errno)
		}
	}
}

// take turns the first used headers into packets.
func (c *Conn) take(b *Batch) {
	s := &b.sys
	bytes := 0
	for i := range s.headers[:s.used] {
		h := &s.headers[i]
		n := int(h.Len)
		if h.Hdr.Flags&unix.MSG_TRUNC != 0 || n > s.slot {
			c.counters.truncated.Add(1)
			continue
		}
		if s.names[i].raw != s.last[i].raw {
			s.last[i] = s.names[i]
			b.sources[i] = s.names[i].addrPort()
		}
		size := 0
		if c.gro {
			size = groSize(h.Hdr.Control, int(h.Hdr.Controllen))
		}
		if size > 0 && n > size {
			c.counters.coalesced.Add(1)
		}
		at := i * s.slot
		b.split(s.buffers[at:at+n:at+n], size, i)
		bytes += n
	}
	if s.used > 0 {
		c.counters.rxBatches.Add(1)
	}
	c.counters.rxPackets.Add(uint64(len(b.packets)))
	c.counters.rxBytes.Add(uint64(bytes))
}

// groSize returns the size of the packets in a buffer from the control message
// that the kernel adds, 0 if there is none.
func groSize(control *byte, n int) int {
	if control == nil || n < unix.SizeofCmsghdr+4 {
		return 0
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(control))
	if h.Level != unix.IPPROTO_UDP || h.Type != unix.UDP_GRO {
		return 0
	}
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(control), unix.SizeofCmsghdr)))
}

// sendSys is what sendmmsg needs.
type sendSys struct {
	conn    *Conn
	headers []unix.Mmsghdr
	iovecs  []unix.Iovec
	control [][controlWords]uint64
	runs    []int // packets in each header
	plain   int   // packets at the head that must go one by one
}

// sendHeaders is how many headers a call of sendmmsg gets at most.
const sendHeaders = 64

// NewSendQueue returns a queue for up to n packets, 256 if n is 0.
func (c *Conn) NewSendQueue(n int) *SendQueue {
	if n <= 0 {
		n = 256
	}
	headers := min(n, sendHeaders)
	return &SendQueue{
		packets: make([]queued, 0, n),
		dsts:    make([]destination, 0, firstDestinations),
		sys: sendSys{
			conn:    c,
			headers: make([]unix.Mmsghdr, headers),
			iovecs:  make([]unix.Iovec, n),
			control: make([][controlWords]uint64, headers),
			runs:    make([]int, headers),
		},
	}
}

// resolve prepares a destination. One of another family than the socket's, or
// in a zone that does not exist, is found out by Send.
func (s *sendSys) resolve(addr netip.AddrPort) destination {
	name, err := makeSockaddr(addr, s.conn.v6)
	if err != nil {
		name.len = 0
	}
	a := addr.Addr().Unmap()
	return destination{addr: addr, name: name, local: a.IsLoopback() || a == s.conn.local.Addr()}
}

// gso reports whether packets to a destination may be put together.
func (s *sendSys) gso(d *destination) bool {
	return s.plain == 0 && s.conn.gso.Load() && (d.local || s.conn.gsoMode == GSOAlways)
}

// Send hands the packets in q to the kernel, first in first out, and returns
// how many it took; they have left the queue. It never waits: when the socket
// buffer is full it returns what it has sent so far, without an error, and the
// rest stays in q (see WaitSend).
//
// A packet that cannot be sent for another reason is dropped, the ones behind
// it are sent all the same, and the first such error is returned, as a
// *SendError. So the caller never has to do anything about an error to go on.
func (c *Conn) Send(q *SendQueue) (sent int, err error) {
	if err := c.enter(); err != nil {
		return 0, err
	}
	defer c.leave()
	if q.sys.conn != c {
		return 0, fmt.Errorf("%w: the queue is of another socket", ErrAddress)
	}
	s := &q.sys
	for refused := 0; q.Len() > 0; {
		if d := &q.dsts[q.packets[q.head].dst]; d.name.len == 0 {
			_, e := makeSockaddr(d.addr, c.v6)
			c.discard(q, e, &err)
			continue
		}
		headers := c.prepare(q)
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&s.headers[0])),
			uintptr(headers), unix.MSG_DONTWAIT, 0, 0)
		runtime.KeepAlive(q)
		c.counters.txCalls.Add(1)
		switch errno {
		case 0:
			sent += c.sent(q, int(n))
			refused = 0
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			c.counters.txFull.Add(1)
			return sent, err
		case unix.ECONNREFUSED:
			// What ICMP said about something sent before; nothing was sent
			// this time. It is reported once, but more may come in.
			if refused++; refused > sendHeaders {
				return sent, err
			}
		case unix.EINVAL, unix.EIO, unix.EMSGSIZE, unix.EOPNOTSUPP:
			if s.runs[0] > 1 {
				// The offload or the packets? Packet by packet will tell.
				s.plain = s.runs[0]
				c.counters.gsoFallbacks.Add(1)
				continue
			}
			c.discard(q, errno, &err)
		default:
			c.discard(q, errno, &err)
		}
	}
	return sent, err
}

// prepare builds headers for the packets at the head and returns how many.
func (c *Conn) prepare(q *SendQueue) (headers int) {
	s := &q.sys
	at, iov := q.head, 0
	for headers < len(s.headers) && at < len(q.packets) {
		d := &q.dsts[q.packets[at].dst]
		if d.name.len == 0 {
			break
		}
		n := q.run(at)
		h := &s.headers[headers].Hdr
		h.Name = &d.name.raw[0]
		h.Namelen = d.name.len
		h.Iov = &s.iovecs[iov]
		h.SetIovlen(n)
		for _, p := range q.packets[at : at+n] {
			s.iovecs[iov].Base = unsafe.SliceData(p.data)
			s.iovecs[iov].SetLen(len(p.data))
			iov++
		}
		if n > 1 {
			setSegment(h, &s.control[headers], len(q.packets[at].data))
		} else {
			h.Control = nil
			h.SetControllen(0)
		}
		s.runs[headers] = n
		headers++
		at += n
		if s.plain > 0 && headers == s.plain {
			break
		}
	}
	return headers
}

// setSegment adds the control message that has the kernel cut a buffer.
func setSegment(h *unix.Msghdr, control *[controlWords]uint64, size int) {
	m := (*unix.Cmsghdr)(unsafe.Pointer(control))
	m.Level = unix.IPPROTO_UDP
	m.Type = unix.UDP_SEGMENT
	m.SetLen(unix.CmsgLen(2))
	*(*uint16)(unsafe.Add(unsafe.Pointer(control), unix.SizeofCmsghdr)) = uint16(size)
	h.Control = (*byte)(unsafe.Pointer(control))
	h.SetControllen(unix.CmsgSpace(2))
}

// sent takes the packets of the first n headers off the queue.
func (c *Conn) sent(q *SendQueue, n int) (packets int) {
	s := &q.sys
	bytes := 0
	for _, run := range s.runs[:n] {
		if run > 1 {
			c.counters.segmented.Add(1)
		}
		for _, p := range q.packets[q.head+packets : q.head+packets+run] {
			bytes += len(p.data)
		}
		packets += run
	}
	if s.plain > 0 && n > 0 {
		// One by one they go: it was the offload. Do without from now on.
		c.gso.Store(false)
		s.plain = 0
	}
	q.drop(packets)
	if n > 0 {
		c.counters.txBatches.Add(1)
	}
	c.counters.txPackets.Add(uint64(packets))
	c.counters.txBytes.Add(uint64(bytes))
	return packets
}

// discard drops the packet at the head because of an error, and keeps the first
// of them.
func (c *Conn) discard(q *SendQueue, cause error, first *error) {
	p := &q.packets[q.head]
	if *first == nil {
		*first = &SendError{Dst: q.dsts[p.dst].addr, Size: len(p.data), Err: cause}
	}
	q.sys.plain = 0 // it was the packet, not the offload
	c.counters.txErrors.Add(1)
	q.drop(1)
}
