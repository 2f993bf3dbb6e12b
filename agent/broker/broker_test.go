package broker

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestServes(t *testing.T) {
	b, err := Start(Config{Listen: "127.0.0.1:0", StoreDir: filepath.Join(t.TempDir(), "js")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	nc, err := nats.Connect(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("x", []byte("y")); err != nil {
		t.Fatal(err)
	}
	if m, err := sub.NextMsg(nats.DefaultTimeout); err != nil || string(m.Data) != "y" {
		t.Errorf("received %v, %v", m, err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AccountInfo(); err != nil {
		t.Errorf("JetStream with a store directory: %v", err)
	}
}

func TestRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tc := range []struct{ name, listen, want string }{
		{"no port", "127.0.0.1", "write host:port"},
		{"bad port", "127.0.0.1:high", "not 0 to 65535"},
		{"large port", "127.0.0.1:65536", "not 0 to 65535"},
		{"taken", taken.Addr().String(), "already in use"},
		{"exposed", "0.0.0.0:0", "configuration file"},
		{"exposed by no host", ":0", "configuration file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := Start(Config{Listen: tc.listen})
			if err == nil {
				b.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q does not say %q", err, tc.want)
			}
		})
	}
	if _, err := Start(Config{Listen: "0.0.0.0:0"}); !errors.Is(err, ErrExposed) {
		t.Errorf("error %v is not ErrExposed", err)
	}
	if _, err := Start(Config{ConfigFile: filepath.Join(t.TempDir(), "none.conf")}); err == nil {
		t.Error("a configuration file that is not there was accepted")
	}
}
