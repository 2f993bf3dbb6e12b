//go:build linux && cgo && ibverbs && rdmacm

// Command guest-rping is the other end of rping in a lab guest: a queue pair of
// the agent's libibverbs provider, its messages taken by the receive loop. As
// client its regions are READ and written by rping's server; as server it READs
// and writes rping's.
//
// A server says so on standard output when it listens, {}; at the end comes a
// line with the Report.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"time"

	"rocelink/agent/lab/cm"
	"rocelink/agent/lab/rping"
)

// reads is how many READs each side may have outstanding; rping has one.
const reads = 1

func main() {
	device := flag.String("device", "", "RDMA device")
	connect := flag.String("connect", "", "`address:port` of an rping -s to ping")
	listen := flag.String("listen", "", "`address:port` to wait at for an rping -c")
	size := flag.Int("size", 64, "bytes of the text, as client")
	count := flag.Int("count", 1, "pings, as client")
	within := flag.Duration("within", time.Minute, "bound on each wait")
	flag.Parse()
	r, err := run(*device, *connect, *listen, *size, *count, *within)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest-rping:", err)
		os.Exit(1)
	}
}

func run(device, connect, listen string, size, count int, within time.Duration) (r rping.Report, err error) {
	if size < rping.MinText || size > rping.MaxText || count < 1 {
		return r, fmt.Errorf("%d pings of %d bytes: want 1 or more of %d to %d", count, size, rping.MinText, rping.MaxText)
	}
	s, err := newSide(device, within)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var c *cm.Connection
	if connect != "" {
		c, err = s.dial(connect)
	} else {
		c, err = s.answer(listen)
	}
	if err != nil {
		return r, err
	}
	defer c.Close()
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		s.hangUp(c)
	}()
	if connect == "" {
		r.Pings, err = rping.Server(s)
	} else if err = rping.Client(s, s.source(size), s.sink(size), count); err == nil {
		r.Pings = count
	}
	// A second time does no harm.
	err = errors.Join(err, c.Disconnect())
	<-hungUp
	if err = errors.Join(err, s.stop()); err != nil {
		return r, err
	}
	t := s.loop.Totals()
	r.Messages, r.Bytes, r.MTU = uint64(t.Messages), uint64(t.Bytes), s.mtu
	return r, nil
}

// dial connects as client. Until rping listens nobody does.
func (s *side) dial(to string) (*cm.Connection, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", to, err)
	}
	late := time.NewTimer(s.within)
	defer late.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		c, err := cm.Dial(at, s.within)
		if err != nil {
			return nil, err
		}
		if err = c.Connect(s.qp.QPN(), reads, s.ready); err == nil {
			return c, nil
		}
		c.Close()
		if !errors.Is(err, cm.ErrNoListener) {
			return nil, fmt.Errorf("connect to %v: %w", at, err)
		}
		select {
		case <-again.C:
		case <-late.C:
			return nil, fmt.Errorf("connect to %v, for %v: %w", at, s.within, err)
		}
	}
}

// answer waits for a client.
func (s *side) answer(on string) (*cm.Connection, error) {
	at, err := netip.ParseAddrPort(on)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", on, err)
	}
	c, err := cm.Listen(at, s.within)
	if err != nil {
		return nil, err
	}
	if _, err = fmt.Println("{}"); err == nil {
		if err = c.Answer(); err == nil {
			err = c.Connect(s.qp.QPN(), reads, s.ready)
		}
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("listen at %v: %w", at, err)
	}
	return c, nil
}
