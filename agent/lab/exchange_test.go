package lab

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"rocelink/fpga/roce"
)

var (
	here  = Endpoint{QPN: 0x11, PSN: 0xfffff0, IP: netip.MustParseAddr("10.44.1.2"), RKey: 0xdeadbeef, Address: 0x7f1280000000}
	there = Endpoint{QPN: 0xabcdef, PSN: 5, IP: netip.MustParseAddr("2001:db8::1")}
)

// both runs the two sides of an exchange against each other.
func both(t *testing.T, client, server func(io.ReadWriter) error) {
	t.Helper()
	a, b := net.Pipe()
	deadline := time.Now().Add(10 * time.Second)
	for _, c := range []net.Conn{a, b} {
		if err := c.SetDeadline(deadline); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		err := server(b)
		_ = b.Close()
		ended <- err
	}()
	err := client(a)
	_ = a.Close()
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
}

func TestPingpongExchange(t *testing.T) {
	var order []string
	side := func(server bool, ours, want Endpoint) func(io.ReadWriter) error {
		return func(c io.ReadWriter) error {
			x := Exchange{Conn: c, Server: server}
			return x.Pingpong(ours, func(theirs Endpoint) error {
				if server {
					order = append(order, "server ready")
				}
				if theirs.RKey = want.RKey; theirs.QPN != want.QPN || theirs.PSN != want.PSN || theirs.IP != want.IP {
					t.Errorf("%+v, want %+v", theirs, want)
				}
				return nil
			})
		}
	}
	both(t, side(false, here, there), side(true, there, here))
	if len(order) != 1 {
		t.Error("the server's queue pair was not made ready")
	}
}

func TestPerftestExchange(t *testing.T) {
	side := func(server bool, ours, want Endpoint, mtu roce.MTU) func(io.ReadWriter) error {
		return func(c io.ReadWriter) error {
			x := Perftest{Exchange: Exchange{Conn: c, Server: server}}
			theirs, agreed, err := x.Open(ours, mtu)
			if err != nil {
				return err
			}
			if theirs != want || agreed != 1024 {
				t.Errorf("%+v at %d, want %+v at 1024", theirs, agreed, want)
			}
			if err := errors.Join(x.Steps(3), x.Reports(), x.Steps(1)); err != nil {
				return err
			}
			if server {
				_, err = io.Copy(io.Discard, c)
				return err
			}
			_, err = c.Write([]byte("done\x00"))
			return err
		}
	}
	both(t, side(false, here, there, 4096), side(true, there, here, 1024))
}

// What the programs themselves say, as seen on the wire.
func TestForeignMessages(t *testing.T) {
	e, err := parsePingpong([]byte("0000:000014:7ab4c6:00000000000000000000ffff0a2c0102\x00"))
	if want := (Endpoint{QPN: 0x14, PSN: 0x7ab4c6, IP: netip.MustParseAddr("10.44.1.2")}); err != nil || e != want {
		t.Errorf("%+v, %v", e, err)
	}
	said := "0000:0010:000011:fffff0:deadbeef:00007f1280000000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:2c:01:02:00000000:\x00"
	if b := here.perftest(); string(b) != said || len(b) != 108 {
		t.Errorf("%d bytes %q", len(b), b)
	}
	if e, err := parsePerftest([]byte(said)); err != nil || e != here {
		t.Errorf("%+v, %v", e, err)
	}
}

func FuzzForeignMessages(f *testing.F) {
	f.Add(here.perftest())
	f.Add([]byte("0000:000014:7ab4c6:00000000000000000000ffff0a2c0102\x00"))
	f.Add([]byte(":::::::::::::::::::::::\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := parsePerftest(b); err == nil {
			again, err := parsePerftest(e.perftest())
			if err != nil || again != e {
				t.Errorf("%+v became %+v, %v", e, again, err)
			}
		} else if !errors.Is(err, ErrExchange) {
			t.Error(err)
		}
		if _, err := parsePingpong(b); err != nil && !errors.Is(err, ErrExchange) {
			t.Error(err)
		}
	})
}
