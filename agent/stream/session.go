package stream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/verbs"
	"rocelink/fpga/pattern"
	"rocelink/fpga/roce"
)

// session is one set-up of a stream: everything between open and close.
type session struct {
	stream *Stream
	reply  rocelink.OpenReply
	board  rocelink.StreamStatus // as last heard
	qp     verbs.QueuePair
	loop   *receive.Loop
	undoing

	running   bool          // the loop was started
	ready     bool          // the queue pair could receive
	loopEnded chan struct{} // loopErr is valid afterwards
	loopErr   error
	published chan struct{}
}

// Codes of the set-up.
const (
	// rnrTimer is 0.64 ms (IBTA vol. 1, table 45).
	rnrTimer = 12
	maxReads = 16
	// hugeFrom is the size of slots from which huge pages are worth it: one.
	hugeFrom = 2 << 20
	// minWindow is the fewest unacknowledged packets that still keep a path
	// busy.
	minWindow = 4
)

func access(v rocelink.Verb) verbs.Access {
	switch v {
	case rocelink.VerbWrite:
		// The board reads the word that counts released frames.
		return verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
	case rocelink.VerbWriteImm:
		return verbs.LocalWrite | verbs.RemoteWrite
	case rocelink.VerbRead:
		return verbs.LocalWrite | verbs.RemoteRead
	}
	return verbs.LocalWrite
}

// open sets a session up. If a step fails, those before it are undone in
// reverse and the error names the step.
//
// A set-up is not broken off half-way: each of its steps has a bound, and an
// end that is asked for meanwhile comes right after.
func (s *Stream) open() (_ *session, err error) {
	ctx := context.Background()
	n := &session{stream: s, loopEnded: make(chan struct{}), published: make(chan struct{})}
	defer func() {
		if err != nil {
			err = fmt.Errorf("open stream %s: %w", s.spec.Name, err)
			if undoErr := n.unwind(); undoErr != nil {
				err = fmt.Errorf("%w; and then: %w", err, undoErr)
			}
			s.detach()
		}
	}()
	spec, dev := s.spec, s.agent.device()
	port, err := dev.Port()
	if err != nil {
		return nil, fmt.Errorf("port: %w", err)
	}
	if !port.Active {
		return nil, fmt.Errorf("port of %s is down", dev.Name())
	}
	mtu := port.MTU
	if spec.MTU > 0 {
		mtu = min(mtu, roce.MTU(spec.MTU))
	}

	m, err := n.means(dev)
	if err != nil {
		return nil, err
	}
	n.qp, err = m.pd.CreateQP(verbs.QPConfig{SendCQ: m.cq, RecvCQ: m.cq, MaxReceives: receives(spec), SRQ: m.srq})
	if err != nil {
		return nil, fmt.Errorf("queue pair: %w", err)
	}
	n.did("destroy queue pair", n.qp.Close)
	if err := n.qp.Init(access(spec.Verb)); err != nil {
		return nil, fmt.Errorf("queue pair to INIT: %w", err)
	}

	s.mu.Lock()
	number := s.result.Sessions
	s.mu.Unlock()
	sink, err := s.take(number)
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	if c, ok := sink.(interface{ Close() error }); ok {
		n.did("close sink", c.Close)
	}
	config := receive.Config{
		QP: n.qp, Pool: m.pool, CQ: m.cq, Memory: m.memory, LKey: m.region.LKey(), Verb: spec.Verb,
		Slots: uint32(spec.Slots), Stride: uint32(spec.stride()), FrameBytes: uint32(spec.FrameBytes.Bytes),
		Sink: sink, Batch: spec.Batch, CPU: spec.CPU, Mode: waiting(spec.Mode), Host: s.agent.host, Board: spec.Board, Stream: spec.Name,
	}
	var credit rocelink.Count
	if spec.Verb == rocelink.VerbWrite && !spec.FreeRunning {
		config.CreditOffset = int(spec.stride()) * spec.Slots
		credit = rocelink.Count(m.region.Address()) + rocelink.Count(config.CreditOffset)
	}
	if spec.Verb == rocelink.VerbRead {
		if config.Pattern, err = pattern.ParseKind(spec.Source); err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
		config.CRC = spec.CRC
	}

	window := spec.Window
	if window == 0 && port.InFlight > 0 {
		// The board's own choice may be more than the device can hold.
		window = max(port.InFlight/int(mtu)/s.agent.count(), minWindow)
	}
	psn := randomPSN()
	request := rocelink.OpenRequest{
		Version: rocelink.Version, Host: s.agent.host, Stream: spec.Name, Verb: spec.Verb,
		QPN: uint32(n.qp.QPN()), PSN: uint32(psn), Address: port.Address.String(), MAC: roce.MAC(port.MAC).String(), MTU: int(mtu),
		Region: rocelink.Region{
			Address: rocelink.Count(m.region.Address()), RKey: m.region.RKey(), Slots: uint32(spec.Slots),
			Stride: uint32(spec.stride()), FrameBytes: uint32(spec.FrameBytes.Bytes), Credit: credit,
		},
		Source:      rocelink.Source{Kind: spec.Source, CRC: spec.CRC, RateKbps: spec.Rate.kbps(), Burst: uint32(spec.Burst), Count: rocelink.Count(spec.Count)},
		LeaseMillis: int(spec.Lease.Milliseconds()), Timeout: spec.Timeout, RetryCount: spec.RetryCount, RNRRetry: spec.RNRRetry, Window: window,
	}
	if err := Request(ctx, s.agent.nc, spec.Board, rocelink.EndpointOpen, request, &n.reply); err != nil {
		return nil, err
	}
	// Undone in reverse: the board stops sending before the queue pair goes.
	n.did("end the receive loop", n.stopLoop)
	n.did("close at the board", n.closeAtBoard)
	peer, err := peerOf(n.reply, mtu)
	if err != nil {
		return nil, err
	}

	config.Session = n.reply.Session
	if n.loop, err = receive.New(config); err != nil {
		return nil, fmt.Errorf("receive loop: %w", err)
	}
	if err := n.loop.Prepare(); err != nil {
		return nil, fmt.Errorf("post receives: %w", err)
	}
	if m.pool != nil {
		n.run() // the share's thread has it already
	}
	if err := n.qp.ReadyToReceive(peer); err != nil {
		return nil, fmt.Errorf("queue pair to RTR: %w", err)
	}
	n.ready = true
	if err := n.qp.ReadyToSend(psn); err != nil {
		return nil, fmt.Errorf("queue pair to RTS: %w", err)
	}
	if m.pool == nil {
		n.run()
	}
	var status rocelink.StreamStatus
	start := rocelink.SessionRequest{Version: rocelink.Version, Session: n.reply.Session, Epoch: n.reply.Epoch, Ready: true}
	if err := Request(ctx, s.agent.nc, spec.Board, rocelink.EndpointStart, start, &status); err != nil {
		return nil, err
	}
	n.board = status
	s.mu.Lock()
	s.result.Sessions++
	s.mu.Unlock()
	s.agent.event("stream-open", spec.Name, n.reply.Session, "%s from board %s: QPN %#06x ← %#06x, path MTU %d", spec.Verb, spec.Board, request.QPN, n.reply.QPN, n.reply.MTU)
	return n, nil
}

// means gets what the session receives with.
func (s *session) means(dev verbs.Device) (*means, error) {
	sh, spec := s.stream.share, s.stream.spec
	if sh == nil {
		// A domain of its own: no board reaches the memory of another stream.
		m := &means{}
		s.did("close what it received with", m.unwind)
		return m, m.obtain(s.stream.agent, dev, spec.stride()*uint64(spec.Slots), access(spec.Verb), receives(spec), s.held)
	}
	st, err := sh.acquire(s.stream.agent, dev)
	if err != nil {
		return nil, err
	}
	s.did("leave the share", func() error {
		err := error(nil)
		if n := letGo(s.held); n > 0 {
			err = fmt.Errorf("%d slots of share %s are still held by their consumer: its other streams do without them", n, sh.name)
		}
		return errors.Join(err, sh.release(st))
	})
	return &st.means, nil
}

// receives is how many receives a stream of its own posts at most; a queue has
// one at least.
func receives(spec Spec) int {
	if spec.Verb == rocelink.VerbWrite || spec.Verb == rocelink.VerbRead {
		return 1
	}
	return spec.Slots
}

func waiting(mode string) receive.Mode {
	if mode == modeBusy {
		return receive.Busy
	}
	return receive.Event
}

// run starts the receive loop. From here on events of the device concern the
// session.
func (s *session) run() {
	go s.publish()
	go func() {
		s.loopErr = s.loop.Run()
		close(s.loopEnded)
	}()
	s.running = true
	s.stream.mu.Lock()
	s.stream.session = s
	s.stream.mu.Unlock()
}

// held is how many slots the session's consumer holds.
func (s *session) held() int {
	if s.loop == nil {
		return 0
	}
	return s.loop.Held()
}

// peerOf checks what the board answered and turns it into attributes.
func peerOf(r rocelink.OpenReply, most roce.MTU) (verbs.PeerAttributes, error) {
	address, err := netip.ParseAddr(r.Address)
	if err != nil {
		return verbs.PeerAttributes{}, fmt.Errorf("board's reply: address: %w", err)
	}
	mac, err := roce.ParseMAC(r.MAC)
	if err != nil {
		return verbs.PeerAttributes{}, fmt.Errorf("board's reply: MAC: %w", err)
	}
	mtu := roce.MTU(r.MTU)
	if !mtu.Valid() || mtu > most {
		return verbs.PeerAttributes{}, fmt.Errorf("board's reply: path MTU %d, at most %d was asked for", r.MTU, most)
	}
	if r.QPN > roce.QPNMask || r.PSN > roce.PSNMask || r.LeaseMillis < rocelink.MinLeaseMillis {
		return verbs.PeerAttributes{}, fmt.Errorf("board's reply: QPN %#x, PSN %#x or lease of %d ms out of range", r.QPN, r.PSN, r.LeaseMillis)
	}
	return verbs.PeerAttributes{
		QPN: roce.QPN(r.QPN), PSN: roce.PSN(r.PSN), Address: address, MAC: mac, MTU: mtu, MinRNRTimer: rnrTimer, MaxReads: maxReads,
	}, nil
}

func (s *session) lease() time.Duration { return time.Duration(s.reply.LeaseMillis) * time.Millisecond }

// request asks the board about this session and keeps its answer.
func (s *session) request(ctx context.Context, endpoint string) (rocelink.StreamStatus, error) {
	var status rocelink.StreamStatus
	err := Request(ctx, s.stream.agent.nc, s.stream.spec.Board, endpoint,
		rocelink.SessionRequest{Version: rocelink.Version, Session: s.reply.Session, Epoch: s.reply.Epoch}, &status)
	if err == nil {
		s.board = status
	}
	return status, err
}

// outOfStep reports whether a board's status says something of this session
// that a renewal should find out at once.
func (s *session) outOfStep(b *rocelink.BoardStatus) bool {
	if b.Epoch != s.reply.Epoch {
		return true
	}
	for _, st := range b.Streams {
		if st.Session == s.reply.Session {
			return st.State != rocelink.StreamRunning
		}
	}
	return true
}

// judge says whether the source has ended, or why the session cannot go on.
func (s *session) judge(status rocelink.StreamStatus) (ended bool, err error) {
	switch status.State {
	case rocelink.StreamStopped:
		return true, nil
	case rocelink.StreamError:
		return false, fmt.Errorf("board's stream: %s", status.Problem)
	case rocelink.StreamClosed:
		return false, fmt.Errorf("%w: %s", errInterrupted, status.Problem)
	}
	return false, nil
}

// publish hands the loop's windows to NATS until the loop has ended.
func (s *session) publish() {
	defer close(s.published)
	a := s.stream.agent
	dev := a.device()
	before := dev.Counters()
	for w := range s.loop.Windows() {
		now := dev.Counters()
		w.Counters = moved(before, now)
		before = now
		a.send(rocelink.WindowSubject(w.Host, w.Stream), w)
	}
}

// moved is what counters moved by. One that is smaller than before, or new,
// began again from 0.
func moved(before, now map[string]uint64) map[string]rocelink.Count {
	var by map[string]rocelink.Count
	for name, v := range now {
		if old := before[name]; old <= v {
			v -= old
		}
		if v == 0 {
			continue
		}
		if by == nil {
			by = map[string]rocelink.Count{}
		}
		by[name] = rocelink.Count(v)
	}
	return by
}

// closeAtBoard tells the board that the session is over. A board that is not
// there closes it by itself when the lease lapses.
func (s *session) closeAtBoard() error {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	request := rocelink.SessionRequest{Version: rocelink.Version, Session: s.reply.Session, Epoch: s.reply.Epoch}
	if err := Request(ctx, s.stream.agent.nc, s.stream.spec.Board, rocelink.EndpointClose, request, nil); err != nil {
		s.stream.agent.log.Debug("close at the board", "stream", s.stream.spec.Name, "err", err)
	}
	return nil
}

// stopLoop brings the queue pair to error, so that its receives are flushed,
// and waits until the loop has taken them.
func (s *session) stopLoop() error {
	if !s.running {
		return nil
	}
	s.loop.Stop()
	err := s.qp.SetError()
	if !s.ready {
		s.loop.LastWQE() // it never took a receive, and not every device says so
	}
	<-s.loopEnded
	<-s.published
	if errors.Is(s.loopErr, receive.ErrNotDrained) {
		err = errors.Join(err, s.loopErr)
	}
	return err
}
