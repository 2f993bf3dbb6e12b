package stream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/verbs"
)

// Taker makes the sink of a session, which counts from 0; each session of a
// stream gets its own. A sink with a method Close() error is closed at the end
// of the session, when the loop has ended.
type Taker func(session int) (receive.Sink, error)

// Stream is one stream of an agent.
type Stream struct {
	agent *Agent
	spec  Spec
	share *share // nil: none
	take  Taker
	// wake is signalled when the board was heard; fail carries the reason why
	// the session under way cannot go on.
	wake  chan struct{}
	fail  chan error
	ended chan struct{}

	mu      sync.Mutex
	state   string
	problem string
	session *session
	result  Result
}

// States of a stream on the host.
const (
	StateWaiting = "waiting" // for the board, or to try again
	StateOpening = "opening"
	StateRunning = "running"
	StateEnding  = "ending"
	StateEnded   = "ended"
	StateFailed  = "failed"
)

// Result is how a stream went, over all its sessions.
type Result struct {
	Stream   string          `json:"stream"`
	Host     string          `json:"host"`
	Verb     rocelink.Verb   `json:"verb"`
	Sessions int             `json:"sessions"`
	Total    rocelink.Totals `json:"total"`
	// Board is the board's last word on the last session.
	Board rocelink.StreamStatus `json:"board"`
	// Interruptions are the reasons for sessions after the first that lost
	// nothing: the board or its fabric restarted.
	Interruptions []string `json:"interruptions,omitempty"`
	// Problem is what went wrong first; "" when every frame arrived once, in
	// order, and was right.
	Problem string `json:"problem,omitempty"`
}

// Received is how many frames crossed: to the host, or for READ to the board.
func (r Result) Received() rocelink.Count {
	if r.Verb == rocelink.VerbRead {
		return r.Board.ReadGood + r.Board.ReadBad
	}
	return r.Total.Messages
}

// Verified is how many of them were checked and right.
func (r Result) Verified() rocelink.Count {
	if r.Verb == rocelink.VerbRead {
		return r.Board.ReadGood
	}
	return r.Total.Verified
}

func newStream(a *Agent, spec Spec, share *share, take Taker) *Stream {
	return &Stream{
		agent: a, spec: spec, share: share, take: take, state: StateWaiting,
		wake: make(chan struct{}, 1), fail: make(chan error, 1), ended: make(chan struct{}),
		result: Result{Stream: spec.Name, Host: a.host, Verb: spec.Verb},
	}
}

// Spec is what the stream was opened with, defaults filled in.
func (s *Stream) Spec() Spec { return s.spec }

// Done is closed when the stream has ended.
func (s *Stream) Done() <-chan struct{} { return s.ended }

func (s *Stream) done() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Result waits for the end of the stream and tells how it went.
func (s *Stream) Result() Result {
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result
}

func (s *Stream) status() rocelink.HostStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := rocelink.HostStream{Stream: s.spec.Name, Board: s.spec.Board, Verb: s.spec.Verb, State: s.state, Problem: s.problem, Opens: rocelink.Count(s.result.Sessions)}
	if s.session != nil {
		h.Session = s.session.reply.Session
		h.Total = s.session.loop.Totals()
	}
	return h
}

func (s *Stream) setState(state, problem string) {
	s.mu.Lock()
	changed := s.state != state || s.problem != problem
	s.state, s.problem = state, problem
	s.mu.Unlock()
	if changed {
		s.agent.change()
	}
}

// heard is called for each status of the stream's board.
func (s *Stream) heard(b *rocelink.BoardStatus) {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	if session == nil || session.outOfStep(b) {
		signal(s.wake)
	}
}

func (s *Stream) deviceEvent(e verbs.Event) {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	switch {
	case session == nil:
		if e.Kind == verbs.EventPortActive || e.Kind == verbs.EventGIDChange {
			signal(s.wake) // what it waits for may have come
		}
		return
	case e.Kind == verbs.EventPortActive || e.Kind == verbs.EventPortDown || e.Kind == verbs.EventSRQLimit:
		return
	case e.Kind == verbs.EventLastWQE:
		if e.QPN == session.qp.QPN() {
			session.loop.LastWQE()
		}
		return
	}
	if e.Kind == verbs.EventQPFatal && e.QPN != session.qp.QPN() {
		return
	}
	select {
	case s.fail <- fmt.Errorf("%v: %s", e.Kind, e.Cause):
	default:
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// retryDelay bounds how long the stream waits before it asks a board again
// that was not heard meanwhile.
const (
	retryDelay    = time.Second
	maxRetryDelay = 8 * time.Second
)

// errInterrupted: the board lost the session without a fault of the path.
var errInterrupted = errors.New("board lost the session")

func (s *Stream) run(ctx context.Context) {
	defer close(s.ended)
	delay := retryDelay
	for ctx.Err() == nil {
		s.setState(StateOpening, s.problem)
		opened, err := s.once(ctx)
		switch {
		case err == nil:
			s.setState(StateEnded, s.result.Problem)
			return
		case opened:
			delay = retryDelay
		case permanent(err):
			s.agent.event("stream-failed", s.spec.Name, 0, "%v", err)
			s.fault(err.Error())
			s.setState(StateFailed, err.Error())
			return
		}
		s.setState(StateWaiting, err.Error())
		if ctx.Err() != nil {
			break
		}
		s.agent.log.Info("stream waits", "stream", s.spec.Name, "reason", err)
		select {
		case <-ctx.Done():
		case <-s.wake:
			// The board is there: a pause all the same, so that a set-up that
			// fails at once does not run in circles.
			pause(ctx, 100*time.Millisecond)
		case <-time.After(delay):
			delay = min(2*delay, maxRetryDelay)
		}
	}
	if s.result.Sessions == 0 {
		s.fault("never opened: " + s.problem)
	}
	s.setState(StateEnded, s.result.Problem)
}

// once opens a session and keeps it to its end: nil if that came in order. The
// device is in use meanwhile.
func (s *Stream) once(ctx context.Context) (opened bool, err error) {
	dev, err := s.agent.acquire()
	if err != nil {
		return false, err
	}
	defer s.agent.release()
	makeshift := linkLocal(dev)
	session, err := s.open()
	if err != nil {
		if makeshift.IsValid() && rocelink.CodeOf(err) == rocelink.CodeBadRequest {
			// Not for good: the address may be why.
			err = fmt.Errorf("%v; this was asked from %v: the stream opens again when there is a better address (ip address add)", err, makeshift)
		}
		return false, err
	}
	err = s.keep(ctx, session)
	s.conclude(session, err)
	return true, err
}

// linkLocal is the device's address if it is a link-local IPv6 one, which an
// interface has before it is given another and boards may refuse.
func linkLocal(dev verbs.Device) netip.Addr {
	port, err := dev.Port()
	if err == nil && port.Address.Is6() && port.Address.IsLinkLocalUnicast() {
		return port.Address
	}
	return netip.Addr{}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// permanent reports whether trying again cannot help.
func permanent(err error) bool {
	switch rocelink.CodeOf(err) {
	case rocelink.CodeBadRequest, rocelink.CodeUnsupported:
		return true
	}
	return errors.Is(err, ErrSpec)
}

// fault records the first thing that went wrong.
func (s *Stream) fault(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result.Problem == "" {
		s.result.Problem = text
	}
}

// keep renews the lease until the source has ended, ctx is cancelled (both nil)
// or the session cannot go on.
func (s *Stream) keep(ctx context.Context, session *session) error {
	// A device that was removed while the session was not there yet told nobody.
	if err := s.agent.away(); err != nil {
		return err
	}
	s.setState(StateRunning, "")
	renew := time.NewTicker(session.lease() / 5)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.finish(session)
		case err := <-s.fail:
			return err
		case <-session.loopEnded:
			return s.loopCause(session.loopErr)
		case <-renew.C:
		case <-s.wake:
		}
		status, err := session.request(ctx, rocelink.EndpointRenew)
		switch {
		case err == nil:
			if ended, err := session.judge(status); err != nil {
				return err
			} else if ended {
				return s.finish(session)
			}
		case errors.Is(err, ErrNoBoard), ctx.Err() != nil, rocelink.CodeOf(err) == "":
			// No server, or a board that is busy: the data goes on, and the
			// board keeps the stream as long as its lease lasts.
			s.agent.log.Debug("renew", "stream", s.spec.Name, "err", err)
		default:
			return fmt.Errorf("%w: %w", errInterrupted, err)
		}
	}
}

// causeLimit is how long a loop that ended waits for what the device says of it.
const causeLimit = 500 * time.Millisecond

// loopCause is why the loop ended. A queue pair that failed has its receives
// flushed, which the loop sees; why it failed comes as an event of the device,
// if it is told at all, before or after that.
func (s *Stream) loopCause(loopErr error) error {
	late := time.NewTimer(causeLimit)
	defer late.Stop()
	select {
	case cause := <-s.fail:
		return fmt.Errorf("%w (receive loop: %w)", cause, loopErr)
	case <-late.C:
		return fmt.Errorf("receive loop: %w", loopErr)
	}
}

// Limits of an orderly end.
const (
	stopLimit  = 5 * time.Second
	catchLimit = 2 * time.Second
	pollDelay  = 10 * time.Millisecond
)

// finish stops the source and waits until what was taken from it has arrived.
func (s *Stream) finish(session *session) error {
	s.setState(StateEnding, "")
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	status, err := session.request(ctx, rocelink.EndpointStop)
	for err == nil && status.State == rocelink.StreamStopping {
		pause(ctx, pollDelay)
		status, err = session.request(ctx, rocelink.EndpointRenew)
	}
	if err != nil {
		return fmt.Errorf("stop the source: %w", err)
	}
	if _, err := session.judge(status); err != nil {
		return err
	}
	if status.State != rocelink.StreamStopped {
		return fmt.Errorf("stop the source: the board's stream is %s after %v: %d of %d frames are acknowledged", status.State, stopLimit, status.FramesDone, status.SourceFrames)
	}
	if s.spec.Verb == rocelink.VerbRead {
		return nil
	}
	deadline := time.Now().Add(catchLimit)
	for time.Now().Before(deadline) && session.loop.Totals().Messages < status.FramesDone {
		pause(ctx, pollDelay)
	}
	return nil
}

// conclude closes the session and adds it to the result.
func (s *Stream) conclude(session *session, cause error) {
	closeErr := session.unwind()
	s.detach()
	total := session.loop.Totals()
	s.mu.Lock()
	s.result.Total.Add(total)
	s.result.Board = session.board
	s.mu.Unlock()
	switch {
	case cause != nil && errors.Is(cause, errInterrupted) && s.spec.Source != rocelink.SourceExternal:
		s.mu.Lock()
		s.result.Interruptions = append(s.result.Interruptions, cause.Error())
		s.mu.Unlock()
	case cause != nil:
		s.fault(cause.Error())
	default:
		if text := verdict(s.spec, session.board, total); text != "" {
			s.fault(text)
		}
	}
	if n := total.Lost() + total.Late + total.Duplicate; n > 0 {
		s.fault(fmt.Sprintf("missing %d, overrun %d, corrupt %d, late %d, duplicate %d, completion errors %d", total.Missing, total.Overrun, total.Corrupt, total.Late, total.Duplicate, total.Errors))
	}
	if closeErr != nil {
		s.fault(closeErr.Error())
	}
	kind, text := "stream-closed", "closed in order"
	if cause != nil {
		kind, text = "stream-lost", cause.Error()
	}
	s.agent.event(kind, s.spec.Name, session.reply.Session, "%s; %d messages, %d bytes", text, total.Messages, total.Bytes)
}

// detach forgets the session and what was signalled of it.
func (s *Stream) detach() {
	s.mu.Lock()
	s.session = nil
	s.mu.Unlock()
	select {
	case <-s.fail:
	default:
	}
}

// verdict compares what both sides counted of a session that ended in order.
func verdict(spec Spec, board rocelink.StreamStatus, total rocelink.Totals) string {
	switch {
	case board.SourceFrames != board.FramesDone:
		return fmt.Sprintf("%d frames taken from the source, %d acknowledged", board.SourceFrames, board.FramesDone)
	case board.SourceDropped > 0:
		return fmt.Sprintf("%d frames dropped at the source", board.SourceDropped)
	case spec.Verb == rocelink.VerbRead && (board.ReadBad > 0 || board.ReadGood != board.FramesDone):
		return fmt.Sprintf("of %d frames read %d were right and %d wrong", board.FramesDone, board.ReadGood, board.ReadBad)
	case spec.Verb != rocelink.VerbRead && total.Messages != board.FramesDone:
		return fmt.Sprintf("the board had %d frames acknowledged, %d arrived", board.FramesDone, total.Messages)
	case spec.Verb != rocelink.VerbRead && total.Bytes != board.BytesDone:
		return fmt.Sprintf("the board had %d bytes acknowledged, %d arrived", board.BytesDone, total.Bytes)
	case spec.Verb != rocelink.VerbRead && spec.Verifies() && total.Verified != total.Messages:
		return fmt.Sprintf("of %d frames %d were verified", total.Messages, total.Verified)
	}
	return ""
}
