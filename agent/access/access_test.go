package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"rocelink"
	"rocelink/agent/broker"
)

const bound = 10 * time.Second

// site is a directory and rocelinkd's own server with its configuration.
type site struct {
	*Directory
	broker *broker.Broker

	mu       sync.Mutex
	refusals []broker.Refusal
	more     chan struct{} // closed by the next one
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	d, err := Init(filepath.Join(dir, "access"), Server{Hosts: []string{"127.0.0.1", "nats.example.org"}, Listen: "127.0.0.1:4222", Store: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Directory: d, more: make(chan struct{})}
	for _, u := range []User{{Kind: Board, Name: "b.1"}, {Kind: Board, Name: "b2"}, {Kind: Agent, Name: "h 1"}, {Kind: Agent, Name: "h2", Boards: []string{"b2"}}, {Kind: Operator, Name: "ann"}, {Kind: Observer, Name: "page"}} {
		if _, err := d.Add(u.Kind, u.Name, u.Boards...); err != nil {
			t.Fatal(err)
		}
	}
	s.broker, err = broker.Start(broker.Config{Listen: "127.0.0.1:0", ConfigFile: d.Path(ServerConfig), Refused: func(r broker.Refusal) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refusals = append(s.refusals, r)
		close(s.more)
		s.more = make(chan struct{})
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.broker.Close)
	return s
}

func (s *site) refused(fits func(broker.Refusal) bool) bool {
	limit := time.After(bound)
	for {
		s.mu.Lock()
		found, more := slices.ContainsFunc(s.refusals, fits), s.more
		s.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-more:
		case <-limit:
			return false
		}
	}
}

func (s *site) access(kind Kind, name string) rocelink.Access {
	folder := s.Folder(kind, name)
	return rocelink.Access{URL: s.broker.URL(), NKey: filepath.Join(folder, SeedFile), CA: filepath.Join(folder, CAFile)}
}

// as connects as a user and collects what the server refuses.
func (s *site) as(t *testing.T, kind Kind, name string, c rocelink.Client) (*nats.Conn, func() error) {
	t.Helper()
	// Refusals come in the order of what is refused. One that everyone gets
	// follows what was asked: what comes before it belongs to that.
	const marker = "marker.that.nobody.may.publish"
	refused := make(chan error, 64)
	c.Name = string(kind) + " " + name
	c.Refused = func(err error) { refused <- err }
	switch kind {
	case Board:
		c.Inbox = rocelink.BoardInbox(name)
	case Agent:
		c.Inbox = rocelink.HostInbox(name)
	}
	nc, err := rocelink.Connect(s.access(kind, name), c)
	if err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
	t.Cleanup(nc.Close)
	return nc, func() (all error) {
		if err := nc.Publish(marker, nil); err != nil {
			return err
		}
		limit := time.After(bound)
		for {
			select {
			case err := <-refused:
				if strings.Contains(err.Error(), marker) {
					return all
				}
				all = errors.Join(all, err)
			case <-limit:
				return fmt.Errorf("%s %s may publish %s", kind, name, marker)
			}
		}
	}
}

// The heart of it: a board's key cannot publish another's status, and so on
// through the table.
func TestPermissions(t *testing.T) {
	s := newSite(t)
	request := func(board, endpoint string) string { return rocelink.RequestSubject(board, endpoint) }
	for _, c := range []struct {
		kind      Kind
		name      string
		publish   []string
		not       []string
		listen    []string
		listenNot []string
	}{
		{Board, "b.1",
			[]string{rocelink.BoardStatusSubject("b.1"), rocelink.BoardEventSubject("b.1")},
			[]string{rocelink.BoardStatusSubject("b2"), rocelink.BoardEventSubject("b2"), rocelink.HostStatusSubject("h 1"), rocelink.WindowSubject("h 1", "s"),
				request("b2", "reset"), request("b.1", "reset"), "$KV." + rocelink.StatusBucket + "." + rocelink.BoardKey("b2"), "$SRV.PING", "_INBOX.x", "$JS.API.STREAM.DELETE." + rocelink.EventStream},
			[]string{request("b.1", "open"), rocelink.BoardStatusSubject("b.1")},
			[]string{request("b2", "open"), "rocelink.>", ">", rocelink.AnyBoardStatus, "_INBOX.>", rocelink.BoardInbox("b2") + ".>"},
		},
		{Agent, "h 1",
			[]string{rocelink.HostStatusSubject("h 1"), rocelink.WindowSubject("h 1", "any"), request("b.1", "open"), request("b2", "renew")},
			[]string{rocelink.HostStatusSubject("h2"), rocelink.BoardStatusSubject("b.1"), request("b.1", "reset"), request("b.1", "power"), request("b.1", "write-register"), request("b.1", "update-begin"), rocelink.WindowSubject("h2", "s")},
			[]string{rocelink.AnyBoardStatus, rocelink.AnyWindow},
			[]string{rocelink.AnyRequest("open"), request("b.1", ">"), "_INBOX.>", rocelink.HostInbox("h2") + ".>"},
		},
		{Agent, "h2",
			[]string{request("b2", "open")},
			[]string{request("b.1", "open"), request("b.1", "status")},
			nil, nil,
		},
		{Operator, "ann",
			[]string{request("b.1", "reset"), request("b2", "write-register"), request("b2", "power"), "$SRV.PING"},
			[]string{rocelink.BoardStatusSubject("b.1"), rocelink.HostStatusSubject("h 1"), "$JS.API.STREAM.DELETE." + rocelink.EventStream},
			[]string{rocelink.AnyBoardEvent, rocelink.AnyHostStatus},
			[]string{rocelink.AnyRequest(">"), ">"},
		},
		{Observer, "page",
			nil,
			[]string{request("b.1", "status"), request("b.1", "reset"), rocelink.BoardStatusSubject("b.1"), "$JS.API.STREAM.CREATE.KV_" + rocelink.StatusBucket},
			[]string{rocelink.AnyBoardStatus, rocelink.AnyHostEvent},
			[]string{rocelink.AnyRequest("open")},
		},
	} {
		nc, refused := s.as(t, c.kind, c.name, rocelink.Client{})
		for _, subject := range c.publish {
			if err := nc.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, subject := range c.listen {
			if _, err := nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
		}
		if err := refused(); err != nil {
			t.Errorf("%s %s: %v", c.kind, c.name, err)
		}
		for _, subject := range c.not {
			if err := nc.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
			if err := refused(); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s %s may publish %s (%v)", c.kind, c.name, subject, err)
			}
			if !s.refused(func(r broker.Refusal) bool {
				return r.Action == "publish" && r.Subject == subject && r.Name == string(c.kind)+" "+c.name && r.Key != ""
			}) {
				t.Errorf("%s %s: the server does not tell of %s", c.kind, c.name, subject)
			}
		}
		for _, subject := range c.listenNot {
			if _, err := nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			if err := refused(); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s %s may listen to %s (%v)", c.kind, c.name, subject, err)
			}
		}
	}
}

// What each of them does all day works: services, history, last state.
func TestEveryday(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	agent, agentRefused := s.as(t, Agent, "h 1", rocelink.Client{})
	if err := rocelink.MakeHistory(ctx, agent); err != nil {
		t.Fatal(err)
	}
	board, boardRefused := s.as(t, Board, "b.1", rocelink.Client{})
	svc, err := micro.AddService(board, micro.Config{Name: rocelink.ServiceName, Version: "1.0.0", QueueGroupDisabled: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []string{rocelink.EndpointOpen, rocelink.EndpointReset} {
		err := svc.AddEndpoint(e, micro.HandlerFunc(func(r micro.Request) { _ = r.Respond([]byte("done")) }), micro.WithEndpointSubject(rocelink.RequestSubject("b.1", e)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := board.Flush(); err != nil {
		t.Fatal(err)
	}
	operator, operatorRefused := s.as(t, Operator, "ann", rocelink.Client{})
	for _, ask := range []struct {
		nc       *nats.Conn
		endpoint string
	}{{agent, rocelink.EndpointOpen}, {operator, rocelink.EndpointReset}, {operator, rocelink.EndpointOpen}} {
		if m, err := ask.nc.RequestWithContext(ctx, rocelink.RequestSubject("b.1", ask.endpoint), nil); err != nil || string(m.Data) != "done" {
			t.Errorf("%s: %v", ask.endpoint, err)
		}
	}
	if _, err := operator.RequestWithContext(ctx, "$SRV.INFO."+rocelink.ServiceName, nil); err != nil {
		t.Errorf("micro info: %v", err)
	}
	last := rocelink.KeepLastState(board, rocelink.BoardKey("b.1"), nil)
	last.Put([]byte("state"))
	last.Close(ctx)
	observer, observerRefused := s.as(t, Observer, "page", rocelink.Client{})
	js, err := jetstream.New(observer)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, rocelink.StatusBucket)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(ctx, rocelink.BoardKey("b.1")); err != nil || string(e.Value()) != "state" {
		t.Errorf("last state: %v, %v", e, err)
	}
	watch, err := kv.WatchAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if e := <-watch.Updates(); e == nil || e.Key() != rocelink.BoardKey("b.1") {
		t.Errorf("watch: %v", e)
	}
	if err := watch.Stop(); err != nil {
		t.Error(err)
	}
	if err := board.Publish(rocelink.BoardEventSubject("b.1"), []byte(`{"version":1,"kind":"k"}`)); err != nil {
		t.Fatal(err)
	}
	found := errors.New("found")
	err = rocelink.Events(ctx, observer, time.Now().Add(-time.Hour), true, func(e rocelink.Event) error {
		if e.Kind == "k" {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		t.Errorf("events: %v", err)
	}
	for who, refused := range map[string]func() error{"agent": agentRefused, "board": boardRefused, "operator": operatorRefused, "observer": observerRefused} {
		if err := refused(); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// A key is exchanged while the client and the server run.
func TestRotation(t *testing.T) {
	s := newSite(t)
	var mu sync.Mutex
	connections := 0
	board, refused := s.as(t, Board, "b2", rocelink.Client{Retry: true, Connected: func() { mu.Lock(); connections++; mu.Unlock() }})
	state := func() int { mu.Lock(); defer mu.Unlock(); return connections }
	wait := func(what string, fits func() bool) {
		t.Helper()
		for end := time.Now().Add(bound); !fits(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	wait("no connection", board.IsConnected)
	old, err := os.ReadFile(filepath.Join(s.Folder(Board, "b2"), SeedFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rotate(Board, "b2"); err != nil {
		t.Fatal(err)
	}
	if err := s.broker.Reload(); err != nil {
		t.Fatal(err)
	}
	before := state()
	if err := board.FlushTimeout(bound); err != nil || !board.IsConnected() {
		t.Fatalf("the first key ended with the rotation: %v", err)
	}
	if err := s.Retire(Board, "b2"); err != nil {
		t.Fatal(err)
	}
	if err := s.broker.Reload(); err != nil {
		t.Fatal(err)
	}
	wait("the board does not come back with its new key", func() bool { return state() > before && board.IsConnected() })
	if err := board.Publish(rocelink.BoardStatusSubject("b2"), nil); err != nil {
		t.Fatal(err)
	}
	if err := refused(); err != nil {
		t.Error(err)
	}
	// The old key is of no use.
	stale := filepath.Join(t.TempDir(), "old.nk")
	if err := os.WriteFile(stale, old, 0o600); err != nil {
		t.Fatal(err)
	}
	a := s.access(Board, "b2")
	a.NKey = stale
	if nc, err := rocelink.Connect(a, rocelink.Client{Name: "thief"}); err == nil {
		nc.Close()
		t.Error("the retired key is accepted")
	} else if !strings.Contains(err.Error(), "credentials") {
		t.Errorf("%v does not say what to do", err)
	}
	if !s.refused(func(r broker.Refusal) bool { return r.Action == "connect" }) {
		t.Error("the server does not tell of the retired key")
	}
	// Who is removed is disconnected.
	ann, _ := s.as(t, Operator, "ann", rocelink.Client{})
	if err := s.Remove(Operator, "ann"); err != nil {
		t.Fatal(err)
	}
	if err := s.broker.Reload(); err != nil {
		t.Fatal(err)
	}
	wait("a removed operator stays", func() bool { return !ann.IsConnected() })
	if _, err := os.Stat(s.Folder(Operator, "ann")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key of a removed operator is still there: %v", err)
	}
}

func TestCertificates(t *testing.T) {
	s := newSite(t)
	// Without the authority, or without TLS or a key: not in.
	a := s.access(Observer, "page")
	for what, b := range map[string]rocelink.Access{
		"without the authority": {URL: a.URL, NKey: a.NKey},
		"without a key":         {URL: a.URL, CA: a.CA},
	} {
		if nc, err := rocelink.Connect(b, rocelink.Client{Name: "x"}); err == nil {
			nc.Close()
			t.Errorf("%s: connected", what)
		}
	}
	shown := func() *x509.Certificate {
		ca, err := os.ReadFile(a.CA)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		var cert *x509.Certificate
		nc, err := nats.Connect(a.URL, nats.Secure(&tls.Config{RootCAs: pool, VerifyConnection: func(c tls.ConnectionState) error {
			cert = c.PeerCertificates[0]
			return nil
		}}))
		if err == nil {
			nc.Close()
		}
		if cert == nil {
			t.Fatal(err)
		}
		return cert
	}
	first := shown()
	if len(first.DNSNames) != 1 || len(first.IPAddresses) != 1 {
		t.Errorf("%v %v", first.DNSNames, first.IPAddresses)
	}
	if err := s.Renew("127.0.0.1", "other.example.org"); err != nil {
		t.Fatal(err)
	}
	if err := s.broker.Reload(); err != nil {
		t.Fatal(err)
	}
	if second := shown(); second.SerialNumber.Cmp(first.SerialNumber) == 0 || second.DNSNames[0] != "other.example.org" {
		t.Errorf("the server shows the old certificate: %v", second.DNSNames)
	}
	if end, err := s.Expires(); err != nil || time.Until(end) < 365*24*time.Hour {
		t.Errorf("%v, %v", end, err)
	}
}

func TestSecretsAreTheOwners(t *testing.T) {
	s := newSite(t)
	secrets := 0
	err := filepath.Walk(s.Path(""), func(name string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		secret := strings.HasPrefix(string(data), "SU") || strings.Contains(string(data), "PRIVATE KEY")
		if secret {
			secrets++
		}
		if secret && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", name, info.Mode())
		}
		if strings.Contains(filepath.Base(name), ".new-") {
			t.Errorf("%s was left", name)
		}
		return nil
	})
	if err != nil || secrets != 2+6 {
		t.Errorf("%d secrets, want 8: %v", secrets, err)
	}
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	good := Server{Hosts: []string{"h"}, Listen: ":4222"}
	for want, bad := range map[string]Server{
		"no host":    {Listen: ":4222"},
		"host name":  {Hosts: []string{"a b"}, Listen: ":4222"},
		"host \"\"":  {Hosts: []string{""}, Listen: ":4222"},
		"host:port":  {Hosts: []string{"h"}, Listen: "4222"},
		"1 to 65535": {Hosts: []string{"h"}, Listen: ":0"},
		"absolute":   {Hosts: []string{"h"}, Listen: ":4222", Store: "x"},
	} {
		d := filepath.Join(dir, fmt.Sprint(len(want)), "x")
		if _, err := Init(d, bad); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v does not say %q", bad, err, want)
		}
		if _, err := os.Stat(d); err == nil {
			t.Errorf("%+v: left half a directory", bad)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	d, err := Init(filepath.Join(dir, "a"), good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Init(filepath.Join(dir, "a"), good); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	for _, name := range []string{"", "a\nb", strings.Repeat("x", rocelink.MaxNameBytes+1)} {
		if _, err := d.Add(Board, name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := d.Add("king", "x"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, err := d.Add(Board, "x", "y"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	// Names that look like something else stay names.
	for _, name := range []string{"../../x", "a\"; users: []", ">", "*", "$SYS"} {
		if _, err := d.Add(Board, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := d.Add(Board, ">"); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	b, err := broker.Start(broker.Config{Listen: "127.0.0.1:0", ConfigFile: d.Path(ServerConfig)})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if err := d.Remove(Board, "none"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	// A state that someone has broken is refused and left alone.
	for text, want := range map[string]string{
		"{":             stateFile,
		`{"version":2}`: "version 2",
		`{"version":1}`: "no host",
		`{"version":1,"server":{"hosts":["h"],"listen":":1"},"users":[{"kind":"board","name":"x","keys":["SUAIB"]}]}`: "begins with U",
		`{"version":1,"server":{"hosts":["h"],"listen":":1"},"users":[{"kind":"board","name":"x"}]}`:                  "0 keys",
	} {
		if err := os.WriteFile(d.Path(stateFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(d.Path("")); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"server":{"hosts":["h"],"listen":":1"},"users":[]}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, stateFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := Open(dir); err == nil {
			_ = d.serverConfig()
		}
	})
}
