package scripted

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"rocelink/agent/verbs"
)

// events is how many asynchronous events wait for a taker.
const events = 64

// Device implements verbs.Device.
type Device struct {
	p    *Provider
	name string

	mu       sync.Mutex
	port     verbs.PortAttributes
	counters map[string]uint64
	events   chan verbs.Event
	closed   bool

	pds, cqs, qps, mrs, srqs atomic.Int32
}

func newDevice(p *Provider, name string) *Device {
	return &Device{p: p, name: name, port: p.config.Port, counters: map[string]uint64{},
		events: make(chan verbs.Event, events)}
}

// Name returns the name the device was opened by.
func (d *Device) Name() string { return d.name }

// Attributes returns Config.Attributes.
func (d *Device) Attributes() verbs.DeviceAttributes { return d.p.config.Attributes }

// Port returns Config.Port or what SetPort said last.
func (d *Device) Port() (verbs.PortAttributes, error) {
	if err := d.p.enter(StepPort); err != nil {
		return verbs.PortAttributes{}, fmt.Errorf("query port of %s: %w", d.name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.port, nil
}

// SetPort changes what Port says. It emits no event.
func (d *Device) SetPort(a verbs.PortAttributes) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.port = a
}

// Events implements verbs.Device.
func (d *Device) Events() <-chan verbs.Event { return d.events }

// Emit sends an asynchronous event; a zero Time becomes now. It is dropped
// after Close.
func (d *Device) Emit(e verbs.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.closed {
		select {
		case d.events <- e:
			return
		default:
		}
		select {
		case <-d.events:
		default:
		}
	}
}

// Counters returns what SetCounter set.
func (d *Device) Counters() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counters)
}

// SetCounter sets a device counter.
func (d *Device) SetCounter(name string, v uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counters[name] = v
}

// Close fails with ErrBusy while anything made from the device is open.
func (d *Device) Close() error {
	object := "device " + d.name
	if err := d.p.enter(StepCloseDevice); err != nil {
		return d.p.record(StepCloseDevice, object, fmt.Errorf("close device %s: %w", d.name, err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if pds, cqs := d.pds.Load(), d.cqs.Load(); pds+cqs > 0 {
		return d.p.record(StepCloseDevice, object,
			fmt.Errorf("close device %s: %w: %d protection domains and %d completion queues are open", d.name, verbs.ErrBusy, pds, cqs))
	}
	d.closed = true
	close(d.events)
	return d.p.record(StepCloseDevice, object, nil)
}

func (d *Device) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.ProtectionDomain, error) {
	err := d.p.enter(StepAllocPD)
	if err == nil && d.isClosed() {
		err = verbs.ErrClosed
	}
	d.p.mu.Lock()
	if err == nil {
		d.p.pds++
	}
	pd := &ProtectionDomain{d: d, object: fmt.Sprintf("pd %d", d.p.pds)}
	d.p.mu.Unlock()
	if err != nil {
		return nil, d.p.record(StepAllocPD, "pd", fmt.Errorf("allocate protection domain: %w", err))
	}
	d.pds.Add(1)
	_ = d.p.record(StepAllocPD, pd.object, nil)
	return pd, nil
}
