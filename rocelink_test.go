package rocelink

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func TestTokenIsSafeUniqueAndReversible(t *testing.T) {
	names := []string{"", "_", "__", "a", "A", "a.b", "a_b", "a_2Eb", "02:00:00:00:00:01", "fe80::1%eth0", "host name", "x*y>z", "ü", "\x00\xff", "-", strings.Repeat(".", 64)}
	seen := map[string]string{}
	for _, n := range names {
		tok := Token(n)
		if tok == "" || strings.ContainsAny(tok, " .*>\t\r\n") {
			t.Errorf("Token(%q) = %q is not one safe token", n, tok)
		}
		if other, dup := seen[tok]; dup {
			t.Errorf("%q and %q both encode to %q", n, other, tok)
		}
		seen[tok] = n
		if back, err := ParseToken(tok); err != nil || back != n {
			t.Errorf("ParseToken(Token(%q)) = %q, %v", n, back, err)
		}
	}
	for _, bad := range []string{"", "a.b", "_2", "_2e", "_61", "_GG", "a_", "é"} {
		if n, err := ParseToken(bad); !errors.Is(err, ErrToken) {
			t.Errorf("ParseToken(%q) = %q, %v; want ErrToken", bad, n, err)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("demo")
	f.Add("_2E")
	f.Fuzz(func(t *testing.T, s string) {
		if back, err := ParseToken(Token(s)); err != nil || back != s {
			t.Errorf("%q came back as %q, %v", s, back, err)
		}
		// What parses must be what Token makes: the encoding is unique.
		if name, err := ParseToken(s); err == nil && Token(name) != s {
			t.Errorf("ParseToken(%q) = %q, which encodes to %q", s, name, Token(name))
		}
	})
}

func TestCountSurvivesJSON(t *testing.T) {
	for _, v := range []Count{0, 1, 1<<53 + 1, math.MaxUint64} {
		data, err := json.Marshal(v)
		if err != nil || data[0] != '"' {
			t.Fatalf("marshal %d: %s, %v", v, data, err)
		}
		var back Count
		if err := json.Unmarshal(data, &back); err != nil || back != v {
			t.Errorf("%d came back as %d, %v", v, back, err)
		}
	}
	for _, bad := range []string{`"-1"`, `"1e3"`, `""`, `"18446744073709551616"`, `1.5`, `true`, `"`} {
		var c Count
		if err := json.Unmarshal([]byte(bad), &c); err == nil {
			t.Errorf("%s was accepted as %d", bad, c)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	var s BoardStatus
	for name, data := range map[string]string{
		"nothing": "", "no object": "[]", "cut": `{"version":1,"board":"x`, "no version": `{"board":"x"}`, "wrong type": `{"version":1,"board":5}`,
		"too large": `{"version":1,"board":"` + strings.Repeat("x", MaxRecord) + `"}`,
	} {
		if err := Decode([]byte(data), &s); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	err := Decode([]byte(`{"version":2}`), &s)
	if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("version 2: %v", err)
	}
	if err := Decode([]byte(`{"version":1,"board":"b","later":[1]}`), &s); err != nil || s.Board != "b" {
		t.Errorf("a field of a later minor change: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	full, _ := json.Marshal(OpenRequest{Version: Version, Host: "h", Verb: VerbWrite})
	f.Add(full)
	f.Add([]byte(`{"version":1,"epoch":"99999999999999999999"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range []any{&OpenRequest{}, &OpenReply{}, &SessionRequest{}, &BoardStatus{}, &HostStatus{}, &Window{}, &Event{}} {
			_ = Decode(data, v)
		}
	})
}

// A record that is read and written again must be the same: nothing of the
// contract is lost on the way.
func TestRecordsRoundTrip(t *testing.T) {
	now := time.Now().Round(0).UTC()
	for _, v := range []any{
		&BoardStatus{Version: 1, Board: "b", Epoch: math.MaxUint64, Time: now, Link: Link{Since: now, Counters: map[string]Count{"x": 1 << 60}}, Streams: []StreamStatus{{Stream: "s", FramesDone: 1 << 55}}},
		&HostStatus{Version: 1, Host: "h", Time: now, Streams: []HostStream{{Stream: "s", Total: Totals{Verified: 7}}}},
		&Window{Version: 1, Start: now, End: now, FirstPacket: &now, ByStatus: map[string]Count{"flushed": 3}, Total: Totals{Messages: 1 << 54}},
		&OpenRequest{Version: 1, Region: Region{Address: 0x7F1280000000, Credit: 1 << 63}, Source: Source{Kind: "prbs31", Count: 5}},
	} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := Decode(data, back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(v, back) {
			t.Errorf("%T:\n%+v\n%+v", v, v, back)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{"demo": true, "ü 1": true, "": false, "a\nb": false, "a\x7f": false, strings.Repeat("x", MaxNameBytes): true, strings.Repeat("x", MaxNameBytes+1): false, "\xff": false} {
		if err := CheckName("board", name); (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		} else if err != nil && CodeOf(err) != CodeBadRequest {
			t.Errorf("CheckName(%q): code %q", name, CodeOf(err))
		}
	}
}

func TestConnectNeedsNoServerWithRetry(t *testing.T) {
	if _, err := Connect(Access{URL: "nats://127.0.0.1:1"}, Client{}); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
	nc, err := Connect(Access{URL: "nats://127.0.0.1:1"}, Client{Retry: true})
	if err != nil {
		t.Fatalf("with Retry: %v", err)
	}
	nc.Close()
}

func TestConnectRefusesContradictions(t *testing.T) {
	nkey := filepath.Join(t.TempDir(), "nkey")
	if err := os.WriteFile(nkey, []byte("not a seed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]Access{
		"certificate without key": {Cert: "c"},
		"two credentials":         {Credentials: "a", NKey: "b"},
		"bad nkey":                {NKey: nkey},
		"no such credentials":     {Credentials: filepath.Join(t.TempDir(), "none")},
		"no such CA":              {CA: filepath.Join(t.TempDir(), "none")},
	} {
		if nc, err := Connect(a, Client{Retry: true}); err == nil && a.Credentials == "" {
			nc.Close()
			t.Errorf("%s: accepted", name)
		} else if nc != nil {
			nc.Close()
		}
	}
}

func TestConnectHidesPasswords(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, Username: "u", Password: "right", NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("server not ready")
	}
	host := strings.TrimPrefix(s.ClientURL(), "nats://")
	_, err = Connect(Access{URL: "nats://u:geheim@" + host}, Client{})
	if err == nil || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), host) {
		t.Errorf("wrong password: %v", err)
	}
}
