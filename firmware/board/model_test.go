package board

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rocelink"
	"rocelink/boards"
	"rocelink/fpga/model"
	"rocelink/fpga/roce"
	"rocelink/fpga/roce/udp"
)

// loopback is an address that no other run of the tests uses.
func loopback(n int) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, 44, byte(pid >> 4), byte(pid<<4) | byte(n)})
}

// playFabric runs the software fabric on a registers file until the returned
// function is called.
func playFabric(t *testing.T, file string) (stop func()) {
	t.Helper()
	shared, err := model.OpenShared(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := model.NewDriver(model.Config{QueuePairs: 4, Registers: shared.Registers()}, model.DriverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// The whole board on the software fabric: registers in a file, frames over UDP.
func TestSoftwareFabric(t *testing.T) {
	file := filepath.Join(t.TempDir(), "registers")
	stopFabric := playFabric(t, file)
	d, err := Override(*description(t), file)
	if err != nil {
		t.Fatal(err)
	}
	local, remote := loopback(1), loopback(2)
	b, err := New(Config{Name: "b", Description: d, MAC: boards.NameMAC("b"), Address: local})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	end := sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { end() })
	wait(t, "link up", func() bool { return b.Status().Link.Up })
	if s := b.Status(); !s.Fabric.Emulated || s.Fabric.QueuePairs != 4 {
		t.Errorf("%+v", s.Fabric)
	}

	// A host that takes packets and answers none.
	host, err := udp.Listen(netip.AddrPortFrom(remote, roce.Port), udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ask := func(endpoint string, req, reply any) error {
		data, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		out, err := b.Handle(endpoint, data)
		if err != nil {
			return err
		}
		return rocelink.Decode(out, reply)
	}
	short, few := 12, 1 // 16.8 ms
	req := openRequest("s")
	req.Address, req.Timeout, req.RetryCount, req.MTU = remote.String(), &short, &few, 1024
	open := func() (rocelink.OpenReply, rocelink.SessionRequest) {
		t.Helper()
		var r rocelink.OpenReply
		if err := ask(rocelink.EndpointOpen, req, &r); err != nil {
			t.Fatal(err)
		}
		s := rocelink.SessionRequest{Version: 1, Session: r.Session, Epoch: r.Epoch, Ready: true}
		var st rocelink.StreamStatus
		if err := ask(rocelink.EndpointStart, s, &st); err != nil || st.State != rocelink.StreamRunning {
			t.Fatalf("%+v, %v", st, err)
		}
		return r, s
	}
	r, _ := open()
	batch := host.NewBatch(0)
	n := 0
	for end := time.Now().Add(bound); n == 0 && time.Now().Before(end); {
		if _, err := host.Wait(time.Until(end)); err != nil {
			t.Fatal(err)
		}
		if n, err = host.Receive(batch); err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 {
		t.Fatal("no packet came")
	}
	// The first packet is what the reply promised.
	p, src := batch.Packet(0)
	if src.Addr() != local || len(p) < 12 {
		t.Fatalf("%d bytes from %v", len(p), src)
	}
	qpn := uint32(p[5])<<16 | uint32(p[6])<<8 | uint32(p[7])
	psn := uint32(p[9])<<16 | uint32(p[10])<<8 | uint32(p[11])
	if qpn != req.QPN || psn != r.PSN {
		t.Errorf("packet to QPN %#x with PSN %#x, want %#x and %#x", qpn, psn, req.QPN, r.PSN)
	}
	// Nobody acknowledges: the stream fails and says why.
	wait(t, "the stream in error", func() bool {
		s := b.Status()
		return len(s.Streams) == 1 && s.Streams[0].State == rocelink.StreamError && strings.Contains(s.Streams[0].Problem, "RetryExceeded")
	})
	if s := b.Status().Streams[0]; s.PacketsResent == 0 || s.PacketsSent == 0 {
		t.Errorf("%+v", s)
	}

	// The fabric ends; the board notices, and the next one is set up in place.
	epoch := b.Status().Epoch
	stopFabric()
	wait(t, "the fabric missing", func() bool { return !b.Status().Fabric.Present })
	playFabric(t, file)
	wait(t, "link up again", func() bool { s := b.Status(); return s.Fabric.Present && s.Link.Up })
	if s := b.Status(); s.Fabric.Restarts != 1 || s.Epoch == epoch {
		t.Errorf("%+v", s)
	}
	again, s := open()
	if again.Epoch == r.Epoch {
		t.Error("the epoch did not change")
	}

	// The end of the program leaves nothing running in the fabric.
	start := time.Now()
	if err := end(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("ended after %v", took)
	}
	err = ask(rocelink.EndpointRenew, s, &rocelink.StreamStatus{})
	if rocelink.CodeOf(err) == "" {
		t.Errorf("renew after the end: %v", err)
	}
	st := b.Status()
	if len(st.Streams) == 0 {
		t.Fatal("no last status of the stream")
	}
	for _, s := range st.Streams {
		if s.State != rocelink.StreamClosed {
			t.Errorf("%+v", s)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if raw[0x40] != 0 {
		t.Error("the core is still enabled")
	}
}
