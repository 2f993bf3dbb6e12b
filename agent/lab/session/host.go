package session

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

// Host is the agent's side of a stream without its NATS: a device, and on it at
// most one session at a time, each with a queue pair, a region and the receive
// loop. Its methods are called by one goroutine at a time.
type Host struct {
	dev    verbs.Device
	events eventLog

	open   Open
	undo   []func() error // what was made, in order
	qp     verbs.QueuePair
	psn    roce.PSN
	config receive.Config
	loop   *receive.Loop
	verify *sink.Verify

	ended   chan error
	windows chan int
}

// NewHost returns a host on a device, which it owns from then on.
func NewHost(dev verbs.Device) *Host {
	h := &Host{dev: dev}
	go h.listen()
	return h
}

// Handle does what one request says. An error is in the reply; a session whose
// Open failed is undone.
func (h *Host) Handle(q Request) Reply {
	r, err := h.handle(q)
	if err != nil {
		r = Reply{Error: err.Error()}
	}
	return r
}

// Close ends the session that is open, if any, and closes the device.
func (h *Host) Close() error { return errors.Join(h.close(), h.dev.Close()) }

func (h *Host) handle(q Request) (Reply, error) {
	switch {
	case q.Open != nil && h.loop != nil:
		return Reply{}, errors.New("a session is open already")
	case q.Open != nil:
		o, err := h.setUp(*q.Open)
		if err != nil {
			return Reply{}, errors.Join(err, h.close())
		}
		return Reply{Opened: o}, nil
	case h.loop == nil:
		return Reply{}, errors.New("no session is open")
	case q.Peer != nil:
		return Reply{Ready: true}, h.connect(*q.Peer)
	case q.Look:
		return Reply{Looked: h.look()}, nil
	case q.Close:
		l, err := h.end()
		return Reply{Looked: l}, err
	}
	return Reply{}, errors.New("request without content")
}

func (h *Host) setUp(o Open) (*Opened, error) {
	h.open = o
	port, err := h.dev.Port()
	if err != nil {
		return nil, err
	}
	access := verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
	pd, err := h.dev.AllocPD()
	if err != nil {
		return nil, err
	}
	h.did(pd.Close)
	const creditBytes = 8
	slots := int(o.Slots) * int(o.Stride)
	memory, err := verbs.AllocMemory(slots+creditBytes, false)
	if err != nil {
		return nil, err
	}
	h.did(memory.Free)
	region, err := pd.Register(memory, access)
	if err != nil {
		return nil, err
	}
	h.did(region.Close)
	depth := int(o.Slots) + 1
	if o.CQDepth > 0 {
		depth = o.CQDepth
	}
	cq, err := h.dev.CreateCQ(depth)
	if err != nil {
		return nil, err
	}
	h.did(cq.Close)
	if h.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxReceives: int(o.Slots)}); err != nil {
		return nil, err
	}
	h.did(h.qp.Close)
	if err := h.qp.Init(access); err != nil {
		return nil, err
	}
	h.config = receive.Config{QP: h.qp, CQ: cq, Memory: memory, LKey: region.LKey(), Verb: o.Verb,
		Slots: o.Slots, Stride: o.Stride, FrameBytes: o.FrameBytes, Pattern: o.Pattern, CRC: o.CRC, Sink: sink.Discard{}}
	if o.Busy {
		h.config.Mode = receive.Busy
	}
	if h.verify = nil; !o.Unchecked {
		if h.verify, err = sink.NewVerify(sink.VerifyConfig{Pattern: o.Pattern, CRC: o.CRC}); err != nil {
			return nil, err
		}
		h.config.Sink = h.verify
	}
	opened := &Opened{QPN: h.qp.QPN(), RKey: region.RKey(), Address: region.Address(),
		IP: port.Address, MAC: port.MAC, MTU: port.MTU, GIDIndex: port.GIDIndex}
	if o.Verb == rocelink.VerbWrite {
		h.config.CreditOffset = slots
		opened.Credit = region.Address() + uint64(slots)
	}
	loop, err := receive.New(h.config)
	if err != nil {
		return nil, err
	}
	if err := loop.Prepare(); err != nil {
		return nil, err
	}
	h.loop, h.ended, h.windows = loop, nil, nil
	h.psn = roce.PSN(rand.Uint32N(roce.PSNMask + 1))
	opened.PSN = h.psn
	return opened, nil
}

func (h *Host) did(undo func() error) { h.undo = append(h.undo, undo) }

func (h *Host) connect(p Peer) error {
	err := h.qp.ReadyToReceive(verbs.PeerAttributes{QPN: p.QPN, PSN: p.PSN, Address: p.IP, MAC: p.MAC, MTU: p.MTU,
		MinRNRTimer: h.open.MinRNRTimer, MaxReads: 16})
	if err == nil {
		err = h.qp.ReadyToSend(h.psn)
	}
	if err != nil {
		return err
	}
	h.ended, h.windows = make(chan error, 1), make(chan int, 1)
	loop := h.loop
	go func() {
		n := 0
		for range loop.Windows() {
			n++
		}
		h.windows <- n
	}()
	go func() { h.ended <- loop.Run() }()
	return nil
}

func (h *Host) look() *Looked {
	l := &Looked{Totals: h.loop.Totals(), Counters: h.dev.Counters(), Events: h.events.all()}
	if h.verify != nil {
		r := h.verify.Report()
		l.Verified, l.Corrupt = r.Verified, r.Corrupt
		if r.First != nil {
			l.First = r.First.String()
		}
	}
	return l
}

// end stops the loop, undoes the session and reports what it came to.
func (h *Host) end() (*Looked, error) {
	var ended string
	windows := 0
	if h.ended != nil {
		h.loop.Stop()
		err := h.qp.SetError()
		if err := errors.Join(<-h.ended, err); err != nil {
			ended = err.Error()
		}
		windows = <-h.windows
	}
	l := h.look()
	l.Ended, l.Windows = ended, windows
	h.ended = nil
	return l, h.close()
}

// close undoes what was made, in reverse.
func (h *Host) close() error {
	if h.ended != nil {
		_, err := h.end()
		return err
	}
	var errs []error
	for _, undo := range slices.Backward(h.undo) {
		errs = append(errs, undo())
	}
	h.undo, h.loop = nil, nil
	return errors.Join(errs...)
}

// listen gathers the device's events.
func (h *Host) listen() {
	for e := range h.dev.Events() {
		h.events.add(strings.TrimSpace(fmt.Sprintf("%v QPN %#x %s", e.Kind, e.QPN, e.Cause)))
	}
}
