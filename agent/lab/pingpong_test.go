//go:build lab

package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"rocelink"
	"rocelink/agent/lab/remote"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/soft"
	"rocelink/fpga/model"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// echo is a whole reliable connection made of our halves, under one QPN: the
// software provider takes what the guest sends, the fabric sends it back.
type echo struct {
	t       *testing.T
	gateway *Gateway
	board   *board
	peer    verbs.PeerAttributes // all but the numbers
	qp      verbs.QueuePair
	loop    *receive.Loop
	size    uint32
	out     *io.PipeWriter
	pings   atomic.Uint64
	answers uint64 // how many pings are answered
	ended   chan error
	before  counters // of rxe
}

func newEcho(t *testing.T, s *segment, size uint32, answers uint64) *echo {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	undo := func(f func() error) {
		t.Cleanup(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	in, out := io.Pipe()
	source := model.NewSource(in, model.SourceConfig{})
	undo(source.Close)
	e := &echo{t: t, size: size, out: out, answers: answers, ended: make(chan error, 1)}
	e.board = newBoard(t, s, model.FaultConfig{}, source)

	const receives = 64
	at, near := loopback(), loopback()
	dev, err := soft.New().Open(at.String())
	must(err)
	undo(dev.Close)
	pd, err := dev.AllocPD()
	must(err)
	undo(pd.Close)
	stride := (size + 63) &^ 63
	memory, err := verbs.AllocMemory(int(receives*stride), false)
	must(err)
	undo(memory.Free)
	mr, err := pd.Register(memory, verbs.LocalWrite)
	must(err)
	undo(mr.Close)
	cq, err := dev.CreateCQ(receives)
	must(err)
	undo(cq.Close)
	e.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxReceives: receives})
	must(err)
	undo(e.qp.Close)
	must(e.qp.Init(verbs.LocalWrite))
	e.loop, err = receive.New(receive.Config{QP: e.qp, CQ: cq, Memory: memory, LKey: mr.LKey(), Verb: rocelink.VerbSend,
		Slots: receives, Stride: stride, FrameBytes: size, Sink: sink.Func(func(f *receive.Frame) receive.Verdict {
			if e.pings.Add(1) > e.answers {
				return 0
			}
			if _, err := out.Write(f.Data); err != nil {
				return receive.Refused
			}
			return 0
		})})
	must(err)
	must(e.loop.Prepare())
	e.gateway, err = NewGateway(&s.port, s.guestMAC, s.guestIP, near, at)
	must(err)
	undo(e.gateway.Close)
	e.peer = verbs.PeerAttributes{Address: near, MAC: s.guestMAC, MTU: s.mtu, MinRNRTimer: 12}
	e.before = s.hardware(bounded(t), t)
	s.attach(t, e.take)
	return e
}

// take gives requests to the responder and everything else to the requester.
func (e *echo) take(frame []byte) {
	var f roce.Frame
	if err := f.Decode(frame); err == nil && f.Packet.Opcode.IsRequest() {
		e.gateway.Take(frame)
		return
	}
	e.board.Take(frame)
}

func (e *echo) endpoint() Endpoint {
	return Endpoint{QPN: e.qp.QPN(), PSN: boardPSN, IP: e.board.segment.Address}
}

// ready connects both halves to the other side.
func (e *echo) ready(theirs Endpoint) error {
	p := e.peer
	p.QPN, p.PSN = theirs.QPN, theirs.PSN
	if err := e.qp.ReadyToReceive(p); err != nil {
		return err
	}
	if err := e.qp.ReadyToSend(boardPSN); err != nil {
		return err
	}
	go func() { e.ended <- e.loop.Run() }()
	e.board.connect(theirs.QPN, e.qp.QPN(), p.MTU, patient)
	e.board.begin(stream{external: true, size: e.size})
	return nil
}

// finish ends the pongs and says how many frames there were each way.
func (e *echo) finish(ctx context.Context) (pings, pongs uint64) {
	e.t.Helper()
	if err := e.out.Close(); err != nil {
		e.t.Error(err)
	}
	e.board.finished(ctx.Done())
	pongs = e.board.count(e.board.stream, regs.StreamStatFramesDone)
	e.t.Logf("fabric %v; gateway %+v; rxe %v", e.board.counters(), e.gateway.Counters(), e.board.segment.hardware(ctx, e.t).since(e.before))
	e.loop.Stop()
	if err := e.qp.SetError(); err != nil {
		e.t.Error(err)
	}
	if err := <-e.ended; err != nil {
		e.t.Error(err)
	}
	return e.pings.Load(), pongs
}

// ibv_rc_pingpong in the guest, as client and as server, with us at the other
// end. It checks what comes back by itself (-c).
func TestPingpong(t *testing.T) {
	const count, port = 100, 18600
	onEach(t, func(t *testing.T, s *segment) {
		for _, size := range []uint32{1, 4096, 8193} {
			args := func(port int, host ...string) []string {
				return append([]string{"ibv_rc_pingpong", "-d", s.device, "-g", "1", "-m", fmt.Sprint(int(s.mtu)), "-c",
					"-s", fmt.Sprint(size), "-n", fmt.Sprint(count), "-p", strconv.Itoa(port)}, host...)
			}
			t.Run(fmt.Sprintf("client/%d", size), func(t *testing.T) {
				report(t)
				ctx := bounded(t)
				e := newEcho(t, s, size, count)
				at, accept := listen(ctx, t)
				p, err := guest.Start(remote.Command{Args: args(at, hostFromGuest), Limit: caseTime})
				if err != nil {
					t.Fatal(err)
				}
				x := Exchange{Conn: accept(), Server: true}
				if err := x.Pingpong(e.endpoint(), e.ready); err != nil {
					t.Fatal(err)
				}
				t.Log(ended(ctx, t, p))
				pings, pongs := e.finish(ctx)
				equal(t, "pings", pings, count)
				equal(t, "pongs", pongs, count)
			})
			t.Run(fmt.Sprintf("server/%d", size), func(t *testing.T) {
				report(t)
				ctx := bounded(t)
				// The last ping has no answer: the server has had all it
				// wants and is gone.
				e := newEcho(t, s, size, count-1)
				p, err := guest.Start(remote.Command{Args: args(port), Limit: caseTime})
				if err != nil {
					t.Fatal(err)
				}
				conn, err := guest.DialGuest(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				if err != nil {
					t.Fatal(err)
				}
				keep(ctx, t, conn)
				x := Exchange{Conn: conn}
				if err := x.Pingpong(e.endpoint(), e.ready); err != nil {
					t.Fatal(err)
				}
				// The first ball is ours.
				if _, err := e.out.Write(make([]byte, size)); err != nil {
					t.Fatal(err)
				}
				t.Log(ended(ctx, t, p))
				pings, pongs := e.finish(ctx)
				equal(t, "pings", pings, count)
				equal(t, "pongs", pongs, count)
			})
		}
	})
}
