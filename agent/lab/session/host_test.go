package session

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"rocelink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/soft"
	"rocelink/fpga/pattern"
)

// softHost is a Host on a loopback address of this process.
func softHost(t *testing.T) *Host {
	t.Helper()
	for n := range 64 {
		at := netip.AddrFrom4([4]byte{127, 46, byte(os.Getpid() >> 2), byte(os.Getpid()<<6 | n)})
		dev, err := soft.New().Open(at.String())
		if errors.Is(err, verbs.ErrBusy) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		h := NewHost(dev)
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		return h
	}
	t.Fatal("no free address")
	return nil
}

func TestHostServesSessionsInTurn(t *testing.T) {
	h := softHost(t)
	for _, verb := range rocelink.Verbs {
		const slots = 4
		r := h.Handle(Request{Open: &Open{Verb: verb, Slots: slots, Stride: 128, FrameBytes: 100, Pattern: pattern.Counter}})
		if r.Error != "" || r.Opened == nil {
			t.Fatalf("%s: %+v", verb, r)
		}
		o := r.Opened
		if o.QPN == 0 || o.RKey == 0 || o.Address == 0 || (o.Credit == 0) == (verb == rocelink.VerbWrite) {
			t.Errorf("%s: %+v", verb, *o)
		}
		if r := h.Handle(Request{Open: &Open{Verb: verb}}); !strings.Contains(r.Error, "open already") {
			t.Errorf("%s: a second open: %+v", verb, r)
		}
		if r := h.Handle(Request{Peer: &Peer{QPN: 9, IP: netip.MustParseAddr("127.46.0.1"), MAC: [6]byte{2}, MTU: 1024}}); !r.Ready || r.Error != "" {
			t.Fatalf("%s: %+v", verb, r)
		}
		if r := h.Handle(Request{Look: true}); r.Looked == nil || r.Looked.Totals.Messages != 0 {
			t.Errorf("%s: %+v", verb, r)
		}
		end := h.Handle(Request{Close: true})
		if end.Error != "" || end.Looked.Ended != "" || end.Looked.Windows < 1 {
			t.Errorf("%s: %+v", verb, end)
		}
		want := map[rocelink.Verb]rocelink.Count{rocelink.VerbSend: slots, rocelink.VerbSendImm: slots, rocelink.VerbWriteImm: slots - 1}[verb]
		if end.Looked.Totals.Flushed != want {
			t.Errorf("%s: %d receives came back, want %d", verb, end.Looked.Totals.Flushed, want)
		}
	}
}

func TestHostRefuses(t *testing.T) {
	h := softHost(t)
	for _, c := range []struct {
		name string
		q    Request
		want string
	}{
		{"a look before open", Request{Look: true}, "no session"},
		{"a peer before open", Request{Peer: &Peer{}}, "no session"},
		{"nothing", Request{}, "no session"},
		{"a strange verb", Request{Open: &Open{Verb: "shout", Slots: 4, Stride: 64}}, "verb"},
		{"slots too small", Request{Open: &Open{Verb: rocelink.VerbSend, Slots: 4, Stride: 64, FrameBytes: 65}}, "stride"},
		{"a strange pattern", Request{Open: &Open{Verb: rocelink.VerbSend, Slots: 4, Stride: 64, Pattern: 9}}, "pattern"},
	} {
		if r := h.Handle(c.q); !strings.Contains(r.Error, c.want) {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	// A failure leaves nothing behind, and a session that never had a peer
	// ends as well as another.
	if r := h.Handle(Request{Open: &Open{Verb: rocelink.VerbSend, Slots: 4, Stride: 64, FrameBytes: 64}}); r.Opened == nil {
		t.Fatalf("%+v", r)
	}
	if r := h.Handle(Request{Peer: &Peer{MTU: 77}}); r.Error == "" {
		t.Errorf("a peer with path MTU 77: %+v", r)
	}
	if r := h.Handle(Request{Close: true}); r.Error != "" {
		t.Errorf("%+v", r)
	}
}
