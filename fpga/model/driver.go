package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

const (
	// Registers in shared memory give no event, so that they are looked at:
	// often for some time after a command, since more may follow.
	pollBusy     = 50 * time.Microsecond
	pollIdle     = time.Millisecond
	pollBusyTime = 5 * time.Millisecond

	// paceSlack is what the scheduler of a loaded machine may be late by
	// without the rate of a stream suffering.
	paceSlack = 20 * time.Millisecond

	// bindRetry is when an address that could not be bound is tried again.
	bindRetry = time.Second
)

// DriverConfig says how a fabric meets the world. The zero value is UDP sockets
// and nothing else.
type DriverConfig struct {
	// Faults are done to both directions, between fabric and socket.
	Faults FaultConfig
	// Capture takes a pcap file of all frames at the socket.
	Capture io.Writer
	// Log takes what a person should know; nil discards it.
	Log *slog.Logger
	// UDP is for the sockets.
	UDP udp.Config
}

// DriverCounters are the driver's own counters. UDP is of the present socket.
type DriverCounters struct {
	Sent, Received FaultCounters
	UDP            udp.Counters
}

// Machine is what a [Driver] runs: a [Fabric], or what else stands behind
// registers and makes and takes frames. The driver's calls come from one
// goroutine.
type Machine interface {
	// Step does what is due at time now and returns when it must be called
	// next, at once if that is not after now.
	Step(now time.Duration) time.Duration
	// ReceiveDatagrams takes what arrived.
	ReceiveDatagrams(now time.Duration, batch []Datagram)
	// Local is the address to have a socket on, while enabled.
	Local() (addr netip.Addr, enabled bool)
	// LastCommand is when software had a command carried out last.
	LastCommand() time.Duration
	// Close is the last call.
	Close() error
}

// Driver runs a fabric in real time. Its frames leave without Ethernet, IP and
// UDP headers as the payload of UDP datagrams, from a socket on LocalIP and port
// 4791 that exists while Control.Enable is set, to the address of the queue
// pair, where acknowledgements come back to the same socket. MAC addresses mean
// nothing there. The source port of all packets is the socket's, because the
// ICRC covers it: QpSourcePort is checked and otherwise ignored.
type Driver struct {
	fabric  *Fabric // nil: the machine is another one
	machine Machine
	cfg     DriverConfig
	log     *slog.Logger

	start   time.Time
	now     time.Duration
	stopped atomic.Bool
	conn    atomic.Pointer[udp.Conn] // for who wakes; the loop owns it
	counted atomic.Pointer[DriverCounters]

	socket   *udp.Conn // nil: not bound
	bound    netip.Addr
	retryAt  time.Duration
	batch    *udp.Batch
	queue    *udp.SendQueue
	in, out  []Datagram
	active   bool // something was sent or received
	outward  *Faults
	inward   *Faults
	capture  *capture
	sendErr  error
	bindErrs int
}

// NewDriver returns a driver with a fabric of its own. It sets what a driver
// must know in cfg: Port, SourcePort and PaceSlack.
func NewDriver(cfg Config, d DriverConfig) (*Driver, error) {
	var f *Fabric
	v, err := NewMachineDriver(func(p Port) (m Machine, err error) {
		cfg.Port = p
		cfg.SourcePort = roce.Port
		cfg.PaceSlack = paceSlack
		f, err = New(cfg)
		return f, err
	}, d)
	if err != nil {
		return nil, err
	}
	v.fabric = f
	for _, s := range cfg.Sources {
		if s != nil {
			s.setNotify(v.wake)
		}
	}
	return v, nil
}

// NewMachineDriver returns a driver of the machine that build makes. The machine
// transmits through the port, during Step only, frames whose UDP source port is
// [roce.Port].
func NewMachineDriver(build func(Port) (Machine, error), d DriverConfig) (*Driver, error) {
	if err := d.Faults.Check(); err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	v := &Driver{cfg: d, log: d.Log, start: time.Now()}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	if d.Faults.Active() {
		v.outward, v.inward = NewFaults(d.Faults, 1), NewFaults(d.Faults, 2)
	}
	if d.Capture != nil {
		c, err := newCapture(d.Capture, v.start)
		if err != nil {
			return nil, err
		}
		v.capture = c
	}
	m, err := build(v)
	if err != nil {
		return nil, err
	}
	v.machine = m
	return v, nil
}

// Fabric is the fabric that the driver runs, nil if it runs another machine.
func (v *Driver) Fabric() *Fabric { return v.fabric }

// Counters returns the driver's counters as of a moment ago.
func (v *Driver) Counters() DriverCounters {
	var c DriverCounters
	if p := v.counted.Load(); p != nil {
		c = *p
	}
	if conn := v.conn.Load(); conn != nil {
		c.UDP = conn.Counters()
	}
	return c
}

// wake ends the wait of Run, from any goroutine.
func (v *Driver) wake() {
	if c := v.conn.Load(); c != nil {
		c.Wake()
	}
}

// Run runs the fabric until ctx is done, which is no error. It returns early if
// the socket or the capture fails for good. It must be called once; the fabric
// is closed when it returns.
func (v *Driver) Run(ctx context.Context) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop := context.AfterFunc(ctx, func() {
		v.stopped.Store(true)
		v.wake()
	})
	defer stop()
	defer func() {
		v.unbind()
		if v.capture != nil {
			err = errors.Join(err, v.capture.flush())
		}
		err = errors.Join(err, v.machine.Close())
	}()
	var active time.Duration
	for !v.stopped.Load() {
		v.now = time.Since(v.start)
		v.active = false
		v.rebind()
		if err := v.receive(); err != nil {
			return err
		}
		next := v.machine.Step(v.now)
		if v.inward != nil {
			next = min(next, v.release())
		}
		if v.active {
			active = v.now
		}
		if v.active || next <= v.now {
			continue
		}
		limit := pollIdle
		if v.now-v.machine.LastCommand() < pollBusyTime {
			limit = pollBusy
		}
		if v.capture != nil && v.now-active > pollIdle {
			if err := v.capture.flush(); err != nil {
				return err
			}
		}
		if err := v.wait(min(limit, next-v.now)); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for a datagram or a time.
func (v *Driver) wait(d time.Duration) error {
	v.publish()
	if v.socket == nil {
		t := time.NewTimer(d)
		<-t.C
		return nil
	}
	if _, err := v.socket.Wait(d); err != nil {
		return fmt.Errorf("wait for datagrams on %v: %w", v.bound, err)
	}
	return nil
}

// publish makes the counters visible to others.
func (v *Driver) publish() {
	if v.outward == nil {
		return
	}
	c := DriverCounters{Sent: v.outward.Count, Received: v.inward.Count}
	if old := v.counted.Load(); old == nil || *old != c {
		v.counted.Store(&c)
	}
}

// rebind opens, changes or closes the socket as the registers ask.
func (v *Driver) rebind() {
	addr, enabled := v.machine.Local()
	if !enabled || !unicast(addr) {
		addr = netip.Addr{}
	}
	if addr == v.bound && (v.socket != nil || !addr.IsValid() || v.now < v.retryAt) {
		return
	}
	v.unbind()
	if addr != v.bound {
		v.bindErrs = 0
	}
	v.bound = addr
	if !addr.IsValid() {
		return
	}
	conn, err := udp.Listen(netip.AddrPortFrom(addr, roce.Port), v.cfg.UDP)
	if err != nil {
		v.retryAt = v.now + bindRetry
		if v.bindErrs == 0 {
			v.log.Error("cannot send: the local address is not bound, frames are dropped", "address", addr, "err", err)
		}
		v.bindErrs++
		return
	}
	receive, send := conn.Buffers()
	v.log.Info("bound", "address", conn.LocalAddr(), "receive buffer", receive, "send buffer", send)
	v.socket = conn
	v.batch, v.queue = conn.NewBatch(0), conn.NewSendQueue(4*batchFrames)
	v.conn.Store(conn)
}

func (v *Driver) unbind() {
	if v.socket == nil {
		return
	}
	v.conn.Store(nil)
	if err := v.socket.Close(); err != nil {
		v.log.Warn("close the socket", "address", v.bound, "err", err)
	}
	v.socket, v.batch, v.queue = nil, nil, nil
}

// receive gives the fabric what has arrived.
func (v *Driver) receive() error {
	if v.socket == nil {
		return nil
	}
	n, err := v.socket.Receive(v.batch)
	if err != nil {
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		return fmt.Errorf("receive on %v: %w", v.bound, err)
	}
	v.in = v.in[:0]
	dst := v.socket.LocalAddr()
	for i := range n {
		b, src := v.batch.Packet(i)
		d := Datagram{Src: src, Dst: dst, Payload: b}
		if v.capture != nil {
			v.capture.datagram(v.now, &d)
		}
		if v.inward != nil {
			v.in = v.inward.Pass(v.now, d, v.in)
		} else {
			v.in = append(v.in, d)
		}
	}
	if v.inward != nil {
		v.in = v.inward.Release(v.now, v.in)
	}
	if len(v.in) > 0 {
		v.active = true
		v.machine.ReceiveDatagrams(v.now, v.in)
	}
	return nil
}

// release lets go what the faults held back, and returns when there is more.
func (v *Driver) release() time.Duration {
	if v.socket != nil {
		v.out = v.outward.Release(v.now, v.out[:0])
		v.send(v.out)
	}
	return min(v.outward.Next(), v.inward.Next())
}

// Transmit is the fabric's port.
func (v *Driver) Transmit(frames [][]byte) (taken, dropped int) {
	v.active = true
	if v.socket == nil {
		return len(frames), len(frames)
	}
	if v.outward != nil {
		v.out = v.out[:0]
		for _, b := range frames {
			dst, payload := datagramOf(b)
			v.out = v.outward.Pass(v.now, Datagram{Src: v.socket.LocalAddr(), Dst: netip.AddrPortFrom(dst, roce.Port), Payload: payload}, v.out)
		}
		v.send(v.out)
		return len(frames), 0
	}
	for _, b := range frames {
		dst, payload := datagramOf(b)
		v.queue.Add(netip.AddrPortFrom(dst, roce.Port), payload)
	}
	sent, err := v.socket.Send(v.queue)
	taken = len(frames) - v.queue.Len()
	v.queue.Reset()
	if taken == 0 {
		// The socket's buffer is full: the ring keeps what does not fit.
		if _, err := v.socket.WaitSend(pollIdle); err != nil {
			v.sendFailed(err)
		}
	}
	if err != nil {
		v.sendFailed(err)
	}
	if v.capture != nil {
		for _, b := range frames[:taken] {
			v.capture.frame(v.now, b)
		}
	}
	return taken, taken - sent
}

// send hands datagrams to the socket; what it does not take is lost, as in the
// bad network that they passed.
func (v *Driver) send(out []Datagram) {
	for len(out) > 0 {
		n := 0
		for n < len(out) && v.queue.Add(out[n].Dst, out[n].Payload) {
			if v.capture != nil {
				v.capture.datagram(v.now, &out[n])
			}
			n++
		}
		out = out[n:]
		if _, err := v.socket.Send(v.queue); err != nil {
			v.sendFailed(err)
		}
		if v.queue.Len() == 0 {
			continue
		}
		if ready, err := v.socket.WaitSend(pollIdle); err != nil || !ready {
			v.outward.Count.Dropped += uint64(v.queue.Len())
			v.queue.Reset()
		}
	}
}

// sendFailed logs a kind of failure once.
func (v *Driver) sendFailed(err error) {
	var e *udp.SendError
	if errors.As(err, &e) {
		err = e.Err
	}
	if v.sendErr != nil && v.sendErr.Error() == err.Error() {
		return
	}
	v.sendErr = err
	v.log.Error("frames are dropped: the socket does not send them", "address", v.bound, "err", err)
}

// datagramOf returns where a frame of the fabric goes and its UDP payload.
func datagramOf(frame []byte) (dst netip.Addr, payload []byte) {
	if frame[12] == 0x08 { // EtherType 0x0800
		return netip.AddrFrom4([4]byte(frame[30:34])), frame[headerBytes(true):]
	}
	return netip.AddrFrom16([16]byte(frame[38:54])), frame[headerBytes(false):]
}
