package board

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"rocelink"
	"rocelink/boards/slot"
	"rocelink/firmware/fabrictest"
	"rocelink/firmware/update"
)

// process1 is a played process 1.
type process1 struct {
	mu        sync.Mutex
	away      error
	asked     []string
	confirmed chan struct{}
	offered   chan time.Time
}

func newProcess1() *process1 {
	return &process1{confirmed: make(chan struct{}, 1), offered: make(chan time.Time, 1)}
}

func (p *process1) Check(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away
}

func (p *process1) Power(_ context.Context, action string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, action)
	return nil
}

func (p *process1) Confirm(context.Context) error {
	p.confirmed <- struct{}{}
	return nil
}

func (p *process1) OfferTime(_ context.Context, t time.Time) error {
	select {
	case p.offered <- t:
	default:
	}
	return nil
}

// ask makes a request of the board and returns the code of its refusal.
func askBoard(t *testing.T, nc *nats.Conn, endpoint string, request, reply any) rocelink.Code {
	t.Helper()
	data, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var m *nats.Msg
	for limit := time.Now().Add(bound); ; {
		m, err = nc.Request(rocelink.RequestSubject("board one", endpoint), data, bound)
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(limit) {
			break
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", endpoint, err)
	}
	if code := m.Header.Get(micro.ErrorCodeHeader); code != "" {
		return rocelink.Code(code)
	}
	if reply != nil {
		if err := json.Unmarshal(m.Data, reply); err != nil {
			t.Fatal(err)
		}
	}
	return ""
}

func TestPower(t *testing.T) {
	s := natsServer(t, -1, "")
	nc := client(t, s)
	events, err := nc.SubscribeSync(rocelink.BoardEventSubject("board one"))
	if err != nil {
		t.Fatal(err)
	}
	p := newProcess1()
	runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: s.ClientURL()}, System: System{Machine: p}})
	power := func(action string) rocelink.Code {
		return askBoard(t, nc, rocelink.EndpointPower, rocelink.PowerRequest{Version: rocelink.Version, Action: action, Reason: "a test"}, nil)
	}
	if code := power("dance"); code != rocelink.CodeBadRequest {
		t.Errorf("an unknown action: %q", code)
	}
	p.mu.Lock()
	p.away = errors.New("away")
	p.mu.Unlock()
	if code := power(rocelink.PowerReboot); code != rocelink.CodeFailed {
		t.Errorf("no process 1: %q", code)
	}
	p.mu.Lock()
	p.away = nil
	if len(p.asked) != 0 {
		t.Errorf("asked %v", p.asked)
	}
	p.mu.Unlock()
	if code := power(rocelink.PowerReboot); code != "" {
		t.Errorf("reboot: %q", code)
	}
	for limit := time.Now().Add(bound); ; {
		m, err := events.NextMsg(time.Until(limit))
		if err != nil {
			t.Fatalf("no event: %v", err)
		}
		var e rocelink.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == "power" {
			if !strings.Contains(e.Text, "a test") {
				t.Errorf("%+v", e)
			}
			break
		}
	}
	for limit := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := len(p.asked)
		p.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("process 1 was not asked")
		}
	}
}

func TestPowerWithoutProcess1(t *testing.T) {
	s := natsServer(t, -1, "")
	runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: s.ClientURL()}})
	nc := client(t, s)
	for endpoint, q := range map[string]any{
		rocelink.EndpointPower:        rocelink.PowerRequest{Version: rocelink.Version, Action: rocelink.PowerOff},
		rocelink.EndpointUpdateBegin:  rocelink.UpdateRequest{Version: rocelink.Version},
		rocelink.EndpointUpdateFinish: rocelink.UpdateStep{Version: rocelink.Version},
		rocelink.EndpointUpdateAbort:  rocelink.UpdateStep{Version: rocelink.Version},
	} {
		if code := askBoard(t, nc, endpoint, q, nil); code != rocelink.CodeUnsupported {
			t.Errorf("%s: %q", endpoint, code)
		}
	}
}

// A broken configuration: the board reports, and does not send.
func TestProblemKeepsTheSendersOff(t *testing.T) {
	s := natsServer(t, -1, "")
	events, err := client(t, s).SubscribeSync(rocelink.BoardEventSubject("board one"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: s.ClientURL()}, System: System{Problem: "card: colour: unknown key", Build: "v1"}})
	if st := b.Status(); st.Problem != "card: colour: unknown key" || st.Image == nil || st.Image.Build != "v1" {
		t.Errorf("%+v", st)
	}
	for _, endpoint := range []string{rocelink.EndpointOpen, rocelink.EndpointStart} {
		_, err := b.Handle(endpoint, []byte(`{"version":1}`))
		if rocelink.CodeOf(err) != rocelink.CodeNoFabric || !strings.Contains(err.Error(), "colour") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if _, err := b.Handle(rocelink.EndpointStatus, nil); err != nil {
		t.Errorf("status: %v", err)
	}
	for limit := time.Now().Add(bound); ; {
		m, err := events.NextMsg(time.Until(limit))
		if err != nil {
			t.Fatalf("no event: %v", err)
		}
		var e rocelink.Event
		if json.Unmarshal(m.Data, &e) == nil && e.Kind == "configuration-problem" && strings.Contains(e.Text, "colour") {
			break
		}
	}
}

// An image on trial is confirmed by the first status that the server took, and
// not without a server.
func TestTrialIsConfirmed(t *testing.T) {
	public, _, _ := ed25519.GenerateKey(nil)
	card := &update.Folder{Dir: t.TempDir()}
	trial := slot.State{Slot: slot.A, Trial: slot.B, Serial: 1}
	for name, data := range map[string][]byte{
		slot.StateFile: trial.Encode(), slot.StateCopy: trial.Encode(), slot.TriesFile: slot.Tries{Serial: 1, Count: 1}.Encode(),
	} {
		if err := card.Overwrite(name, data); err != nil {
			t.Fatal(err)
		}
	}
	images := update.New(update.Config{Slot: slot.B, Model: "demo", Key: public, Open: func(context.Context, bool) (update.Card, error) { return card, nil }})
	s := natsServer(t, -1, "")
	p := newProcess1()
	b, _ := runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: s.ClientURL()}, System: System{Machine: p, Images: images}})
	select {
	case <-p.confirmed:
	case <-time.After(bound):
		t.Fatal("never confirmed")
	}
	data, err := card.Read(slot.StateFile)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := slot.DecodeState(data); err != nil || state.Slot != slot.B || state.Trial != "" {
		t.Errorf("%+v, %v", state, err)
	}
	if st := b.Status(); st.Image == nil || st.Image.Trial || st.Image.Slot != slot.B {
		t.Errorf("%+v", st.Image)
	}
}

// Pieces come with headers; their size follows the server's limit.
func TestPiecesOverNATS(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(nil)
	card := &update.Folder{Dir: t.TempDir()}
	state := slot.State{Slot: slot.A}
	for _, name := range []string{slot.StateFile, slot.StateCopy} {
		if err := card.Overwrite(name, state.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	images := update.New(update.Config{Slot: slot.A, Model: "demo", Key: public, Open: func(context.Context, bool) (update.Card, error) { return card, nil }})
	s := natsServer(t, -1, "")
	runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: s.ClientURL()}, System: System{Images: images}})
	nc := client(t, s)
	var at rocelink.UpdateReply
	q := rocelink.UpdateRequest{Version: rocelink.Version, Size: 1000, SHA256: make([]byte, 32), Signature: ed25519.Sign(private, nil), Build: "x"}
	if code := askBoard(t, nc, rocelink.EndpointUpdateBegin, q, &at); code != "" || at.Slot != slot.B || at.Piece < 1000 || at.Piece > maxPiece {
		t.Fatalf("%q %+v", code, at)
	}
	write := func(number, offset string, n int) (rocelink.UpdateReply, string) {
		m := nats.NewMsg(rocelink.RequestSubject("board one", rocelink.EndpointUpdateWrite))
		m.Header.Set(rocelink.UpdateHeader, number)
		m.Header.Set(rocelink.OffsetHeader, offset)
		m.Data = bytes.Repeat([]byte{7}, n)
		r, err := nc.RequestMsg(m, bound)
		if err != nil {
			t.Fatal(err)
		}
		var reply rocelink.UpdateReply
		if r.Header.Get(micro.ErrorCodeHeader) == "" {
			if err := json.Unmarshal(r.Data, &reply); err != nil {
				t.Fatal(err)
			}
		}
		return reply, r.Header.Get(micro.ErrorCodeHeader)
	}
	number := at.Update
	if _, code := write("", "0", 10); code != string(rocelink.CodeBadRequest) {
		t.Errorf("no number: %q", code)
	}
	if _, code := write("1", "-1", 10); code != string(rocelink.CodeBadRequest) {
		t.Errorf("no offset: %q", code)
	}
	text, _ := json.Marshal(uint64(number))
	if r, code := write(string(text), "0", 1000); code != "" || r.Offset != 1000 {
		t.Errorf("%q %+v", code, r)
	}
	if code := askBoard(t, nc, rocelink.EndpointUpdateFinish, rocelink.UpdateStep{Version: rocelink.Version, Update: number}, nil); code != rocelink.CodeBadRequest {
		t.Errorf("a hash of zeros: %q", code)
	}
	if card.Size(slot.New(slot.B)) != 0 || card.Size(slot.Image(slot.B)) != 0 {
		t.Error("something is left")
	}
}

// The server's clock is offered while ours is not set; TLS waits for it.
func TestClock(t *testing.T) {
	s := natsServer(t, -1, t.TempDir())
	nc := client(t, s)
	if err := rocelink.MakeHistory(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	p := newProcess1()
	var set atomic.Bool
	runBoard(t, fabrictest.New(), Config{NATS: &rocelink.Access{URL: s.ClientURL()}, System: System{Machine: p, ClockSet: set.Load}})
	select {
	case at := <-p.offered:
		if time.Since(at).Abs() > 2*offerTrip {
			t.Errorf("offered %v", at)
		}
	case <-time.After(bound):
		t.Fatal("no time was offered")
	}

	for url, want := range map[string]bool{"nats://a": false, "tls://a": true, "nats://a, wss://b": true} {
		if got := usesTLS(&rocelink.Access{URL: url}); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
	var asked atomic.Int32
	u := &uplink{board: &Board{cfg: Config{
		NATS: &rocelink.Access{URL: "tls://a"}, System: System{ClockSet: func() bool { return asked.Add(1) > 3 }},
	}}, log: slog.New(slog.DiscardHandler)}
	u.awaitClock(t.Context())
	if n := asked.Load(); n != 4 {
		t.Errorf("looked %d times", n)
	}
}
