//go:build linux && cgo && ibverbs && rdmacm

package main

/*
#cgo LDFLAGS: -libverbs
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>

// post posts one request that completes with an entry in the queue.
static int post(void *qp, int opcode, uint64_t local, uint32_t bytes, uint32_t lkey, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = local, .length = bytes, .lkey = lkey };
	struct ibv_send_wr wr = {
		.opcode = (enum ibv_wr_opcode)opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = remote, .rkey = rkey },
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, &wr, &bad);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"rocelink"
	"rocelink/agent/lab/cm"
	"rocelink/agent/lab/rping"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs"
	"rocelink/fpga/roce"
)

// The memory of a side: receives, a message to send, and two texts.
const (
	receives   = 8
	stride     = 64
	sendAt     = receives * stride
	sourceAt   = sendAt + stride
	sinkAt     = sourceAt + textStride
	memorySize = sinkAt + textStride
	textStride = (rping.MaxText + 63) &^ 63
)

// raw is a queue pair that lets requests be posted on it.
type raw interface{ Raw() unsafe.Pointer }

// side is a queue pair with its memory and its receive loop; it implements
// rping.Connection.
type side struct {
	within time.Duration
	dev    verbs.Device
	undo   []func() error // what was made, in order
	memory *verbs.Memory
	region verbs.MemoryRegion
	sends  verbs.CompletionQueue
	qp     verbs.QueuePair
	loop   *receive.Loop
	mtu    roce.MTU

	messages chan [rping.MessageBytes]byte
	message  [rping.MessageBytes]byte
	ended    chan error    // of the loop; nil: it does not run
	hungUp   chan struct{} // closed when either side has hung up
	cause    error         // of that; io.EOF: in order
}

func newSide(device string, within time.Duration) (s *side, err error) {
	s = &side{within: within, messages: make(chan [rping.MessageBytes]byte, receives), hungUp: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dev, err = ibverbs.New(ibverbs.Config{}).Open(device); err != nil {
		return nil, err
	}
	s.did(s.dev.Close)
	pd, err := s.dev.AllocPD()
	if err != nil {
		return nil, err
	}
	s.did(pd.Close)
	if s.memory, err = verbs.AllocMemory(memorySize, false); err != nil {
		return nil, err
	}
	s.did(s.memory.Free)
	if s.region, err = pd.Register(s.memory, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead); err != nil {
		return nil, err
	}
	s.did(s.region.Close)
	cq, err := s.dev.CreateCQ(receives)
	if err != nil {
		return nil, err
	}
	s.did(cq.Close)
	if s.sends, err = s.dev.CreateCQ(1); err != nil {
		return nil, err
	}
	s.did(s.sends.Close)
	if s.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: s.sends, RecvCQ: cq, MaxReceives: receives, MaxSends: 1}); err != nil {
		return nil, err
	}
	s.did(s.qp.Close)
	s.loop, err = receive.New(receive.Config{QP: s.qp, CQ: cq, Memory: s.memory, LKey: s.region.LKey(), Verb: rocelink.VerbSend,
		Slots: receives, Stride: stride, FrameBytes: rping.MessageBytes, Sink: sink.Func(s.take)})
	return s, err
}

func (s *side) did(undo func() error) { s.undo = append(s.undo, undo) }

// close undoes what was made, in reverse.
func (s *side) close() error {
	errs := []error{s.stop()}
	for _, undo := range slices.Backward(s.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// stop ends the receive loop and says how it ended.
func (s *side) stop() error {
	if s.ended == nil {
		return nil
	}
	s.loop.Stop()
	err := s.qp.SetError()
	err = errors.Join(<-s.ended, err)
	s.ended = nil
	return err
}

// ready takes the queue pair to RTS as the connection manager says, with receives
// posted before the peer can send.
func (s *side) ready(a cm.Attributes) error {
	port, err := s.dev.Port()
	if err != nil {
		return err
	}
	if a.Device != s.dev.Name() || a.GIDIndex != port.GIDIndex {
		return fmt.Errorf("the connection is of %s, GID index %d; the queue pair of %s, %d", a.Device, a.GIDIndex, s.dev.Name(), port.GIDIndex)
	}
	s.mtu = a.Peer.MTU
	// The manager permits atomics, too.
	if err := s.qp.Init(a.Access & (verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead)); err != nil {
		return err
	}
	if err := s.loop.Prepare(); err != nil {
		return err
	}
	if err := s.qp.ReadyToReceive(a.Peer); err != nil {
		return err
	}
	if err := s.qp.ReadyToSend(a.PSN); err != nil {
		return err
	}
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.loop.Run() }()
	return nil
}

// take is the loop's sink.
func (s *side) take(f *receive.Frame) receive.Verdict {
	if len(f.Data) != rping.MessageBytes {
		f.Owner.Fail(fmt.Errorf("message of %d bytes, want %d", len(f.Data), rping.MessageBytes))
		return receive.Refused
	}
	select {
	case s.messages <- [rping.MessageBytes]byte(f.Data):
		return 0
	default:
		f.Owner.Fail(errors.New("more messages than rping has under way"))
		return receive.Refused
	}
}

// hangUp waits until either side hangs up.
func (s *side) hangUp(c *cm.Connection) {
	if s.cause = c.HungUp(); s.cause == nil {
		s.cause = io.EOF
	}
	close(s.hungUp)
	s.sends.Wake()
}

func (s *side) part(at, size int) rping.Memory {
	return rping.Memory{Buffer: rping.Buffer{Address: s.region.Address() + uint64(at), RKey: s.region.RKey(), Size: uint32(size)},
		Bytes: s.memory.Bytes()[at:][:size]}
}

func (s *side) source(size int) rping.Memory { return s.part(sourceAt, size) }
func (s *side) sink(size int) rping.Memory   { return s.part(sinkAt, size) }

// Receive implements rping.Connection.
func (s *side) Receive() ([]byte, error) {
	late := time.NewTimer(s.within)
	defer late.Stop()
	select {
	case s.message = <-s.messages:
		return s.message[:], nil
	case <-s.hungUp:
		return nil, s.cause
	case err := <-s.ended:
		s.ended <- err
		return nil, fmt.Errorf("wait for a message: the receive loop has ended: %w", err)
	case <-late.C:
		return nil, fmt.Errorf("wait for a message: none within %v", s.within)
	}
}

// Send implements rping.Connection.
func (s *side) Send(m []byte) error {
	copy(s.memory.Bytes()[sendAt:], m)
	return s.do("SEND", C.IBV_WR_SEND, sendAt, uint32(len(m)), rping.Buffer{})
}

// Read implements rping.Connection.
func (s *side) Read(b rping.Buffer) ([]byte, error) {
	text := s.memory.Bytes()[sourceAt:][:b.Size]
	clear(text)
	return text, s.do("READ", C.IBV_WR_RDMA_READ, sourceAt, b.Size, b)
}

// Write implements rping.Connection.
func (s *side) Write(to rping.Buffer, text []byte) error {
	return s.do("WRITE", C.IBV_WR_RDMA_WRITE, sourceAt, uint32(len(text)), to)
}

// do posts one request and waits for its completion. A peer that has hung up may
// have taken it, but is not waited for long: to rdma_rxe the provider's seven
// retries are for ever.
func (s *side) do(what string, opcode C.int, local int, bytes uint32, remote rping.Buffer) error {
	if rc := C.post(s.qp.(raw).Raw(), opcode, C.uint64_t(s.region.Address()+uint64(local)), C.uint32_t(bytes), C.uint32_t(s.region.LKey()),
		C.uint64_t(remote.Address), C.uint32_t(remote.RKey)); rc != 0 {
		return fmt.Errorf("post %s of %d bytes: %w", what, bytes, syscall.Errno(rc))
	}
	var wcs [1]verbs.WorkCompletion
	hungUp := s.hungUp
	for deadline := time.Now().Add(s.within); ; {
		if err := s.sends.Arm(); err != nil {
			return err
		}
		n, err := s.sends.Poll(wcs[:])
		switch {
		case err != nil:
			return fmt.Errorf("%s of %d bytes: %w", what, bytes, err)
		case n == 1 && wcs[0].Status != verbs.Success:
			return fmt.Errorf("%s of %d bytes: %v", what, bytes, wcs[0].Status)
		case n == 1:
			return nil
		}
		select {
		case <-hungUp:
			const grace = time.Second
			hungUp, deadline = nil, time.Now().Add(min(grace, time.Until(deadline)))
		default:
		}
		left := time.Until(deadline)
		switch {
		case left <= 0 && hungUp == nil:
			return fmt.Errorf("%s of %d bytes: %w", what, bytes, s.cause)
		case left <= 0:
			return fmt.Errorf("%s of %d bytes: no completion within %v", what, bytes, s.within)
		}
		if _, err := s.sends.Wait(left); err != nil {
			return err
		}
	}
}
