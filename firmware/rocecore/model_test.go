package rocecore

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"rocelink/fpga/model"
	"rocelink/fpga/roce"
)

// Whatever the driver accepts the fabric accepts too: a refusal after registers
// were written would name a register, not a setting.
func TestAcceptedSettingsPassTheModel(t *testing.T) {
	f, err := model.New(model.Config{QueuePairs: 2, MaxMTU: 2048, MaxWindow: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := Open(f.Bus(), model.ApertureBytes, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetUp(localMAC, localIP); err != nil {
		t.Fatal(err)
	}
	if i := c.Info(); i.QueuePairs != 2 || i.MaxMTU != 2048 || i.MaxWindow != 32 || !i.Emulated || i.External || i.Boot == 0 {
		t.Errorf("%+v", i)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(v ...uint64) uint64 { return v[rnd.IntN(len(v))] }
	// step brings back to Reset and Idle, and reports acceptance; the setting
	// is either refused before or not at all.
	accepted, refused := 0, 0
	check := func(what any, configure func() error) {
		t.Helper()
		if err := errors.Join(c.ResetStream(1), c.ResetQP(1)); err != nil {
			t.Fatal(err)
		}
		switch err := configure(); {
		case err == nil:
			accepted++
		case errors.Is(err, ErrSetting), errors.Is(err, ErrUnsupported):
			refused++
		default:
			t.Fatalf("%+v: %v", what, err)
		}
	}
	for range 3000 {
		q := goodQP()
		q.Window, q.MTU = 32, 2048
		switch rnd.IntN(8) {
		case 0:
			q.MTU = roce.MTU(pick(0, 256, 512, 1024, 2048, 4096, 1500))
		case 1:
			q.LocalQPN = roce.QPN(pick(0, 1, 2, roce.QPNMask, roce.QPNMask+1))
		case 2:
			q.RemoteQPN = roce.QPN(pick(0, 1, 2, roce.QPNMask, 1<<32-1))
		case 3:
			q.StartPSN = roce.PSN(pick(0, roce.PSNMask, roce.PSNMask+1))
		case 4:
			q.Window = uint32(pick(0, 1, 32, 33))
		case 5:
			q.RemoteMAC[0] = byte(rnd.Uint32())
		case 6:
			q.RemoteIP = netip.AddrFrom4([4]byte{byte(rnd.Uint32()), 0, 0, byte(rnd.Uint32())})
		case 7:
			q.Timeout, q.RetryCount, q.RNRRetry = uint8(rnd.IntN(40)), uint8(rnd.IntN(9)), uint8(rnd.IntN(9))
		}
		check(q, func() error { return c.ConfigureQP(1, q) })
	}
	for range 5000 {
		s := Stream{
			Verb: uint32(rnd.IntN(6)), Pattern: uint32(rnd.IntN(3)), External: rnd.IntN(20) == 0, CRC: rnd.IntN(2) == 0,
			FrameBytes: uint32(pick(0, 1, 3, 4, 5, 8, 4096, 8191, 16<<20, 16<<20+1)),
			Slots:      uint32(pick(0, 1, 2, 1000, 1<<32-1)),
			Stride:     uint32(pick(0, 8, 12, 16, 24, 4096, 4112, 8192, 8208, 1<<32-8)),
			Base:       pick(0, 8, 0x1001, 0x7F1280000000, 1<<64-8192, 1<<64-8),
			Credit:     pick(0, 0, 0, 4, 8, 0x7F1280000000-8, 1<<64-8),
			Count:      rnd.Uint64(), RateKbps: rnd.Uint32(), Burst: rnd.Uint32(),
		}
		check(s, func() error { return c.ConfigureStream(1, s) })
	}
	if accepted < 500 || refused < 500 {
		t.Errorf("%d accepted, %d refused: the test lost its meaning", accepted, refused)
	}
}

// The counters of a stream that sends into the void.
func TestModelLatch(t *testing.T) {
	f, err := model.New(model.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := Open(f.Bus(), model.ApertureBytes, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetUp(localMAC, localIP); err != nil {
		t.Fatal(err)
	}
	q := goodQP()
	q.Timeout, q.RetryCount, q.Window = 1, 1, 8
	for _, step := range []func() error{
		func() error { return c.ConfigureQP(3, q) },
		func() error { return c.ConfigureStream(3, Stream{FrameBytes: 10000}) },
		func() error { return c.Start(3) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	f.Step(1)
	s, p, err := c.LatchQP(3)
	if err != nil || s.State != "Ready" || s.PacketsSent != 8 || s.PacketsAcked != 0 || p.TxDropped != 8 || s.NextPSN != q.StartPSN.Add(8) {
		t.Errorf("%+v %+v %v", s, p, err)
	}
	st, err := c.LatchStream(3)
	if err != nil || st.State != "Running" || st.FramesPosted != 3 || st.FramesDone != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	// Nobody answers.
	for now := time.Millisecond; now < time.Second; now += time.Millisecond {
		f.Step(now)
	}
	if s, _, err = c.LatchQP(3); err != nil || !s.Failed || s.Cause != "RetryExceeded" || s.PacketsResent == 0 || s.Timeouts != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if st, err = c.LatchStream(3); err != nil || st.State != "Error" {
		t.Errorf("%+v, %v", st, err)
	}
	if err := c.Start(3); !errors.Is(err, ErrState) {
		t.Errorf("start in error: %v", err)
	}
}
