package stream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// returns makes a bench's device one that comes back: first not at all, then
// with an address of another kind, then as it was.
type returns struct {
	asked atomic.Int32
	held  chan struct{} // closed: it may come back
}

func (r *returns) configure(b *bench, c *Config) {
	c.Reopen = func() (verbs.Device, error) {
		if live := b.provider.StillOpen(); len(live) > 0 {
			return nil, fmt.Errorf("opened while there were %q", live)
		}
		n := r.asked.Add(1)
		select {
		case <-r.held:
		default:
			return nil, fmt.Errorf("%w: nothing of that name", verbs.ErrNoDevice)
		}
		dev, err := b.provider.Open("")
		if err != nil {
			return nil, err
		}
		b.device = dev
		if n%2 == 0 {
			port, _ := dev.Port()
			port.Address = netip.MustParseAddr("fe80::1")
			dev.(*scripted.Device).SetPort(port)
		}
		return dev, nil
	}
}

func unplug(b *bench) {
	d := b.provider.Devices()
	d[len(d)-1].Emit(verbs.Event{Kind: verbs.EventDeviceRemoved, Cause: "it was unplugged"})
}

// A device that is removed has everything of it closed in order, the status says
// so and goes on, and streams run again when it is back, each time.
func TestDeviceRemovedAndBack(t *testing.T) {
	r := &returns{held: make(chan struct{})}
	b := newBench(t, r.configure)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo", Slots: 4, FrameBytes: SizeOf(8), Sink: SinkDiscard}, discard)
	if err != nil {
		t.Fatal(err)
	}
	await(t, b.board)
	was := b.agent.Status().Device.Address
	unplug(b)
	eventually(t, func() bool { return len(b.provider.StillOpen()) == 0 && r.asked.Load() > 0 })
	if err := b.provider.CheckUnwound(); err != nil {
		t.Error(err)
	}
	if n := b.board.called(rocelink.EndpointClose); n != 1 {
		t.Errorf("closed %d times at the board", n)
	}
	eventually(t, func() bool {
		h := b.agent.Status()
		return strings.Contains(h.Device.Problem, "device removed: it was unplugged; not back yet") && !h.Device.Active && h.Device.Address == "" &&
			len(h.Streams) == 1 && strings.Contains(h.Streams[0].Problem, "device removed")
	})
	// Whoever listens hears of it.
	sub, err := b.nc.SubscribeSync(rocelink.HostStatusSubject("host"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(10 * time.Second)
	var h rocelink.HostStatus
	if err != nil || rocelink.Decode(m.Data, &h) != nil || !strings.Contains(h.Device.Problem, "device removed") {
		t.Errorf("status %+v, %v", h.Device, err)
	}
	close(r.held)
	for opens := rocelink.Count(2); opens < 4; opens++ {
		await(t, b.board)
		eventually(t, func() bool {
			h := b.agent.Status()
			return h.Device.Problem == "" && h.Device.Active && h.Device.Address == was && h.Streams[0].State == StateRunning && h.Streams[0].Opens == opens
		})
		if opens < 3 {
			unplug(b)
		}
	}
	cancel()
	if res := result(t, s); res.Sessions != 3 || !strings.Contains(res.Problem, "device removed: it was unplugged") {
		t.Errorf("result %+v", res)
	}
	b.close(t)
}

// An agent whose device is away ends as any other.
func TestEndWhileDeviceIsAway(t *testing.T) {
	for name, changes := range map[string][]func(*bench, *Config){
		"would come back": {(&returns{held: make(chan struct{})}).configure}, "stays away": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, changes...)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo", Slots: 4, Sink: SinkDiscard}, discard)
			if err != nil {
				t.Fatal(err)
			}
			await(t, b.board)
			unplug(b)
			eventually(t, func() bool { return strings.Contains(s.status().Problem, "device removed") && s.status().Session == 0 })
			cancel()
			result(t, s)
			b.close(t)
		})
	}
}

// keeper is a consumer that keeps what it is given.
type keeper struct{ frames chan receive.Frame }

func (k keeper) Take(f *receive.Frame) receive.Verdict {
	k.frames <- *f
	return receive.Kept
}

// What a consumer still holds when the device goes stays readable for it; the
// device is closed all the same, within the bound.
func TestFramesHeldWhenTheDeviceGoes(t *testing.T) {
	r := &returns{held: make(chan struct{})}
	close(r.held)
	b := newBench(t, r.configure)
	k := keeper{make(chan receive.Frame, 4)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo", Slots: 4, FrameBytes: SizeOf(8), Sink: SinkDiscard},
		func(int) (receive.Sink, error) { return k, nil })
	if err != nil {
		t.Fatal(err)
	}
	await(t, b.board)
	if err := b.provider.QueuePairs()[0].Deliver(scripted.Message{Data: []byte("12345678")}); err != nil {
		t.Fatal(err)
	}
	f := <-k.frames
	unplug(b)
	await(t, b.board) // on the device that came back
	if string(f.Data) != "12345678" {
		t.Errorf("the frame held is %q now", f.Data)
	}
	f.Release()
	cancel()
	if res := result(t, s); res.Sessions != 2 || !strings.Contains(res.Problem, "device removed") {
		t.Errorf("result %+v", res)
	}
	b.close(t)
}

// A port that has no address says so, and its streams open when one comes.
func TestStreamsWaitForAnAddress(t *testing.T) {
	b := newBench(t)
	defer b.close(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo", Slots: 4, Sink: SinkDiscard}, discard)
	if err != nil {
		t.Fatal(err)
	}
	await(t, b.board)
	b.provider.Inject(scripted.Fault{Step: scripted.StepPort, Sticky: true, Err: errors.New("no address")})
	b.provider.Devices()[0].Emit(verbs.Event{Kind: verbs.EventGIDChange, Cause: "no address"})
	eventually(t, func() bool {
		h := b.agent.Status()
		return !h.Device.Active && strings.Contains(h.Device.Problem, "no address") && strings.Contains(h.Streams[0].Problem, "no address") && h.Streams[0].State == StateWaiting
	})
	b.provider.Clear(scripted.StepPort)
	b.provider.Devices()[0].Emit(verbs.Event{Kind: verbs.EventGIDChange, Cause: "it has one"})
	await(t, b.board)
	cancel()
	if res := result(t, s); res.Sessions != 2 {
		t.Errorf("result %+v", res)
	}
}

// What a board refuses to a link-local address it may not refuse to the one that
// takes its place.
func TestRefusalOfALinkLocalAddress(t *testing.T) {
	b := newBench(t)
	defer b.close(t)
	dev := b.provider.Devices()[0]
	proper, err := dev.Port()
	if err != nil {
		t.Fatal(err)
	}
	makeshift := proper
	makeshift.Address = netip.MustParseAddr("fe80::1%eth1")
	dev.SetPort(makeshift)
	b.board.refuse[rocelink.EndpointOpen] = rocelink.Refuse(rocelink.CodeBadRequest, "address: no zone")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := b.agent.Open(ctx, Spec{Name: "s", Board: "demo", Slots: 4, Sink: SinkDiscard}, discard)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		h := s.status()
		return h.State == StateWaiting && strings.Contains(h.Problem, "no zone") && strings.Contains(h.Problem, "fe80::1%eth1")
	})
	b.board.mu.Lock()
	delete(b.board.refuse, rocelink.EndpointOpen)
	b.board.mu.Unlock()
	dev.SetPort(proper)
	dev.Emit(verbs.Event{Kind: verbs.EventGIDChange, Cause: "it has one"})
	await(t, b.board)
	cancel()
	if r := result(t, s); r.Problem != "" || r.Sessions != 1 {
		t.Errorf("result %+v", r)
	}
}
