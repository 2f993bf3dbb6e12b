package scripted

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"rocelink/agent/verbs"
	"rocelink/fpga/roce"
)

var (
	// ErrFault is the cause of a failure that a Fault without Err made.
	ErrFault = errors.New("fault injected")
	// ErrNoReceive: the peer would be told "receiver not ready".
	ErrNoReceive = errors.New("no receive posted")
)

// Config shapes a Provider. The zero value is an active 100G port on
// 192.0.2.1 with path MTU 4096.
type Config struct {
	// Names are the devices there are; none is one called "scripted0".
	Names []string
	// Attributes are the limits of each device; zero fields are generous.
	Attributes verbs.DeviceAttributes
	// Port is what Device.Port says; the zero value is described above.
	Port verbs.PortAttributes
	// RubbishIDs gives failed completions a work request ID that was never
	// posted, as some devices do. Flushed ones are failed ones.
	RubbishIDs bool
	// ZeroWriteLength reports 0 as the length of WRITE with immediate, as
	// some devices do.
	ZeroWriteLength bool
	// NoLastWQE keeps EventLastWQE back, as a device that forgets it.
	NoLastWQE bool
}

// RubbishID is the work request ID of failed completions with
// Config.RubbishIDs.
const RubbishID = 0xdead_beef_dead_beef

// Provider is the scripted provider and the record of what was done with it.
type Provider struct {
	config Config

	mu      sync.Mutex // the record and the objects; never taken on the data path
	calls   []Call
	devices []*Device
	cqs     []*CompletionQueue
	qps     []*QueuePair
	regions []*MemoryRegion
	pds     int
	srqs    int
	nextQPN roce.QPN
	nextKey uint32

	counts [steps]atomic.Uint64
	faults [steps]atomic.Pointer[fault]
}

type fault struct {
	Fault
	left atomic.Int64
}

// New returns a provider.
func New(config Config) *Provider {
	if len(config.Names) == 0 {
		config.Names = []string{"scripted0"}
	}
	a := &config.Attributes
	a.Provider = "scripted"
	a.MaxQP = orInt(a.MaxQP, 1024)
	a.MaxQPReceives = orInt(a.MaxQPReceives, 1<<16)
	a.MaxCQ = orInt(a.MaxCQ, 1024)
	a.MaxCQE = orInt(a.MaxCQE, 1<<22)
	a.MaxMR = orInt(a.MaxMR, 1024)
	a.MaxSRQ = orInt(a.MaxSRQ, 1024)
	a.MaxSRQReceives = orInt(a.MaxSRQReceives, 1<<16)
	if a.MaxMRBytes == 0 {
		a.MaxMRBytes = 1 << 40
	}
	if config.Port == (verbs.PortAttributes{}) {
		config.Port = verbs.PortAttributes{
			Active: true, MTU: roce.MaxMTU, Address: netip.AddrFrom4([4]byte{192, 0, 2, 1}),
			MAC: [6]byte{0x02, 0, 0xc0, 0, 2, 1}, GIDIndex: 3, SpeedGbps: 100,
		}
	}
	// Keys and numbers begin where no test guesses them by accident.
	return &Provider{config: config, nextQPN: 0x1100, nextKey: 0x5a00_1000}
}

func orInt(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}

// Name returns "scripted".
func (p *Provider) Name() string { return "scripted" }

// Open opens a device. The empty name is the first there is.
func (p *Provider) Open(name string) (verbs.Device, error) {
	if name == "" {
		name = p.config.Names[0]
	}
	object := "device " + name
	if err := p.enter(StepOpen); err != nil {
		return nil, p.record(StepOpen, object, fmt.Errorf("open device %q: %w", name, err))
	}
	for _, n := range p.config.Names {
		if n != name {
			continue
		}
		d := newDevice(p, name)
		p.mu.Lock()
		p.devices = append(p.devices, d)
		p.mu.Unlock()
		_ = p.record(StepOpen, object, nil)
		return d, nil
	}
	return nil, p.record(StepOpen, object,
		fmt.Errorf("open device %q: %w: there are %q", name, verbs.ErrNoDevice, p.config.Names))
}

// Inject arms a fault; it replaces an earlier one of the same step.
func (p *Provider) Inject(f Fault) {
	if f.Err == nil {
		f.Err = ErrFault
	}
	n := &fault{Fault: f}
	n.left.Store(int64(max(f.Nth, 1)))
	p.faults[f.Step].Store(n)
}

// Clear disarms the fault of a step.
func (p *Provider) Clear(s Step) { p.faults[s].Store(nil) }

// fails counts a call and returns the fault it meets, or nil.
func (p *Provider) fails(s Step) *fault {
	p.counts[s].Add(1)
	f := p.faults[s].Load()
	if f == nil {
		return nil
	}
	if left := f.left.Add(-1); left == 0 || left < 0 && f.Sticky {
		return f
	}
	return nil
}

func (p *Provider) enter(s Step) error {
	if f := p.fails(s); f != nil {
		return f.Err
	}
	return nil
}

// record notes a call and returns its error.
func (p *Provider) record(s Step, object string, err error) error {
	p.mu.Lock()
	p.calls = append(p.calls, Call{s, object, err})
	p.mu.Unlock()
	return err
}

// Count returns how often a step was called.
func (p *Provider) Count(s Step) uint64 { return p.counts[s].Load() }

// Calls returns the recorded calls in order.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Call(nil), p.calls...)
}

// Devices returns the devices opened so far, in order, closed ones too.
func (p *Provider) Devices() []*Device {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*Device(nil), p.devices...)
}

// CompletionQueues returns those created so far, in order, closed ones too.
func (p *Provider) CompletionQueues() []*CompletionQueue {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*CompletionQueue(nil), p.cqs...)
}

// QueuePairs returns those created so far, in order, closed ones too.
func (p *Provider) QueuePairs() []*QueuePair {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*QueuePair(nil), p.qps...)
}

// Regions returns those registered so far, in order, closed ones too.
func (p *Provider) Regions() []*MemoryRegion {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*MemoryRegion(nil), p.regions...)
}

// open replays the record as a stack and returns what is left on it.
func (p *Provider) open() (stack []string, err error) {
	for _, c := range p.Calls() {
		switch {
		case c.Err != nil:
		case c.Step.creates():
			stack = append(stack, c.Object)
		case c.Step.closes():
			if n := len(stack); n == 0 || stack[n-1] != c.Object {
				return stack, fmt.Errorf("%s was closed while %q were open: the last one comes first", c.Object, stack)
			}
			stack = stack[:len(stack)-1]
		}
	}
	return stack, nil
}

// StillOpen names the objects that were not closed, in order of creation.
func (p *Provider) StillOpen() []string {
	var open []string
	for _, c := range p.Calls() {
		switch {
		case c.Err != nil:
		case c.Step.creates():
			open = append(open, c.Object)
		case c.Step.closes():
			for i, o := range open {
				if o == c.Object {
					open = append(open[:i], open[i+1:]...)
					break
				}
			}
		}
	}
	return open
}

// CheckUnwound returns an error unless everything that was created has been
// closed, in exactly the reverse order of creation.
func (p *Provider) CheckUnwound() error {
	open, err := p.open()
	if err == nil && len(open) > 0 {
		err = fmt.Errorf("still open: %q", open)
	}
	return err
}
