// Package stream keeps the streams of a board: a host opens one, starts it,
// renews its lease and closes it, and whatever the host does or fails to do,
// the fabric ends up without half a stream in it.
//
// Everything about a request is checked before a register is written. A Manager
// is not safe for concurrent use; it belongs to whoever owns the hardware.
package stream

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"rocelink"
	"rocelink/firmware/rocecore"
	"rocelink/fpga/roce"
)

// Fabric is what the manager needs of the RoCE core; rocecore.Core is it.
type Fabric interface {
	Info() rocecore.Info
	CheckQP(rocecore.QP) error
	CheckStream(rocecore.Stream) error
	ConfigureQP(int, rocecore.QP) error
	ResetQP(int) error
	ConfigureStream(int, rocecore.Stream) error
	ResetStream(int) error
	Start(int) error
	Stop(int) error
	LatchQP(int) (rocecore.QPStatus, rocecore.Port, error)
	LatchStream(int) (rocecore.StreamStatus, error)
}

// Config shapes a Manager. MAC and Address must be set.
type Config struct {
	MAC     roce.MAC   // of the fabric's port
	Address netip.Addr // of the fabric's port
	// MTU is the largest path MTU the network takes; 0 is the fabric's.
	MTU roce.MTU
	// TrafficClass goes into each IP header (DSCP in bits 7..2).
	TrafficClass uint8
	// Lease is granted when a host asks for none; 0 is
	// rocelink.DefaultLeaseMillis.
	Lease time.Duration
	// KeepClosed is how long a closed stream stays in Status, so that its last
	// counters are seen; 0 is 10 s.
	KeepClosed time.Duration
	// LinkUp reports whether frames can leave, and if not, why. nil: always.
	LinkUp func() (up bool, why string)
	// Event is told what happens. nil: nobody.
	Event func(rocelink.Event)
	// Now is the clock (monotonic); nil is time.Now.
	Now func() time.Time
	// Random gives session numbers, QPNs and PSNs; nil is crypto/rand.
	Random io.Reader
}

const (
	// maxHistory is how many closed sessions are remembered, so that closing
	// again is answered with the last status.
	maxHistory = 64
	// hopLimit of the packets: RoCE stays within a site.
	hopLimit = 64
	// closedByHost is the only reason that is no problem.
	closedByHost = "closed by the host"
	pKey         = 0xFFFF // the default partition, full member
	// The source port carries entropy for link aggregation; RoCE uses the
	// dynamic range (IBTA annex A17; Linux rdma_flow_label_to_udp_sport). A
	// software fabric sends from its socket's port whatever is set here.
	minSourcePort = 0xC000
)

// Manager is the set of streams of one fabric.
type Manager struct {
	cfg      Config
	fabric   Fabric
	missing  string // why there is no fabric
	epoch    uint64
	sessions []*session // by queue pair; nil where free
	closed   []*session // oldest first
	port     rocecore.Port
	fault    error
}

// session is one stream.
type session struct {
	id      uint64
	index   int // queue pair
	req     rocelink.OpenRequest
	mtu     roce.MTU
	lease   time.Duration
	readyBy time.Time // start is refused afterwards
	expires time.Time
	started bool
	ended   time.Time // when it was closed
	reason  string    // why it was closed
	lapsed  bool      // it was closed since nobody renewed it
	status  rocelink.StreamStatus
}

// New returns a manager without a fabric.
func New(cfg Config) *Manager {
	if cfg.Lease <= 0 {
		cfg.Lease = rocelink.DefaultLeaseMillis * time.Millisecond
	}
	if cfg.KeepClosed <= 0 {
		cfg.KeepClosed = 10 * time.Second
	}
	if cfg.LinkUp == nil {
		cfg.LinkUp = func() (bool, string) { return true, "" }
	}
	if cfg.Event == nil {
		cfg.Event = func(rocelink.Event) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	m := &Manager{cfg: cfg, missing: "the fabric is not set up yet"}
	m.epoch = m.random()
	return m
}

// Epoch changes whenever all sessions became void.
func (m *Manager) Epoch() rocelink.Count { return rocelink.Count(m.epoch) }

// Port returns the counters of the port as last latched.
func (m *Manager) Port() rocecore.Port { return m.port }

// Fault returns the error that says that the fabric is not usable any more, if
// there was one since the last call. The owner then calls Detach.
func (m *Manager) Fault() error {
	err := m.fault
	m.fault = nil
	return err
}

// Attach begins a new epoch on a fabric that was just set up and has no queue
// pairs.
func (m *Manager) Attach(f Fabric) {
	if m.fabric != nil {
		m.Detach("the fabric was set up again")
	}
	m.fabric, m.missing, m.fault = f, "", nil
	m.sessions = make([]*session, f.Info().QueuePairs)
	m.port = rocecore.Port{}
	m.epoch = m.random()
}

// Detach ends every stream without touching the fabric, which is gone, was
// restarted, or has just been reset. A new epoch begins.
func (m *Manager) Detach(reason string) {
	for _, s := range m.sessions {
		if s != nil {
			m.retire(s, rocelink.StreamCauseFabric, reason)
		}
	}
	m.fabric, m.sessions, m.missing, m.fault = nil, nil, reason, nil
	m.epoch = m.random()
}

// random returns a number that is never 0.
func (m *Manager) random() uint64 {
	for {
		var b [8]byte
		if _, err := io.ReadFull(m.cfg.Random, b[:]); err != nil {
			// crypto/rand does not fail; another source is a test's.
			panic("stream: random numbers: " + err.Error())
		}
		if v := binary.LittleEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}

// refuse makes the refusal of an error of the fabric, and notes a fault.
func (m *Manager) refuse(step string, err error) *rocelink.Error {
	m.note(err)
	code := rocelink.CodeFailed
	switch {
	case errors.Is(err, rocecore.ErrSetting):
		code = rocelink.CodeBadRequest
	case errors.Is(err, rocecore.ErrUnsupported):
		code = rocelink.CodeUnsupported
	case errors.Is(err, rocecore.ErrNoFabric), errors.Is(err, rocecore.ErrRestarted), errors.Is(err, rocecore.ErrIncompatible):
		code = rocelink.CodeNoFabric
	case errors.Is(err, rocecore.ErrState):
		code = rocelink.CodeState
	}
	return rocelink.Refuse(code, "%s: %v", step, err)
}

// note remembers an error after which the fabric cannot be trusted: everything
// but a refusal.
func (m *Manager) note(err error) {
	switch {
	case err == nil, errors.Is(err, rocecore.ErrSetting), errors.Is(err, rocecore.ErrUnsupported), errors.Is(err, rocecore.ErrRefused):
	case m.fault == nil:
		m.fault = err
	}
}

func (m *Manager) event(kind string, s *session, format string, args ...any) {
	m.cfg.Event(rocelink.Event{
		Version: rocelink.Version, Kind: kind, Stream: s.req.Stream, Session: rocelink.Count(s.id),
		Text: fmt.Sprintf("stream %s of host %s: %s", s.req.Stream, s.req.Host, fmt.Sprintf(format, args...)),
	})
}

// live finds an open session.
func (m *Manager) live(id uint64) *session {
	for _, s := range m.sessions {
		if s != nil && s.id == id {
			return s
		}
	}
	return nil
}

// past finds a closed session.
func (m *Manager) past(id uint64) *session {
	for _, s := range m.closed {
		if s.id == id {
			return s
		}
	}
	return nil
}

// find checks a request and finds its session.
func (m *Manager) find(step string, req rocelink.SessionRequest) (*session, error) {
	if req.Epoch != m.Epoch() {
		return nil, rocelink.Refuse(rocelink.CodeOldEpoch, "%s: session %d is of epoch %d, the board is in %d: it restarted: open again", step, req.Session, req.Epoch, m.epoch)
	}
	if m.fabric == nil {
		return nil, rocelink.Refuse(rocelink.CodeNoFabric, "%s: %s", step, m.missing)
	}
	if s := m.live(uint64(req.Session)); s != nil {
		return s, nil
	}
	if s := m.past(uint64(req.Session)); s != nil {
		code := rocelink.CodeUnknown
		if step == "start" && s.lapsed && !s.started {
			code = rocelink.CodeNotReady
		}
		return nil, rocelink.Refuse(code, "%s: session %d was closed: %s: open again", step, req.Session, s.reason)
	}
	return nil, rocelink.Refuse(rocelink.CodeUnknown, "%s: no session %d here: open again", step, req.Session)
}

// Start lets frames flow. The host must be ready, the session fresh and the
// link up. Starting a running stream again changes nothing.
func (m *Manager) Start(req rocelink.SessionRequest) (rocelink.StreamStatus, error) {
	s, err := m.find("start", req)
	if err != nil {
		return rocelink.StreamStatus{}, err
	}
	now := m.cfg.Now()
	switch {
	case !req.Ready:
		return rocelink.StreamStatus{}, rocelink.Refuse(rocelink.CodeNotReady, "start: ready is not set: bring the host's queue pair to ready-to-receive first")
	case s.started && s.status.State == rocelink.StreamRunning:
		return m.reply(s), nil
	case s.started || s.status.State != rocelink.StreamOpen:
		return rocelink.StreamStatus{}, rocelink.Refuse(rocelink.CodeState, "start: the stream is %s: a stream starts once: open again", s.status.State)
	case now.After(s.readyBy):
		return rocelink.StreamStatus{}, rocelink.Refuse(rocelink.CodeNotReady, "start: %v after open, at most %v are allowed: open again", now.Sub(s.readyBy.Add(-s.lease)).Round(time.Millisecond), s.lease)
	}
	if up, why := m.cfg.LinkUp(); !up {
		return rocelink.StreamStatus{}, rocelink.Refuse(rocelink.CodeLinkDown, "start: the link is not up: %s", why)
	}
	if err := m.fabric.Start(s.index); err != nil {
		return rocelink.StreamStatus{}, m.refuse("start", err)
	}
	s.started = true
	s.status.State = rocelink.StreamRunning
	s.expires = now.Add(s.lease)
	m.event("stream-start", s, "started")
	return m.reply(s), nil
}

// Stop takes no more frames; what was taken is still delivered. The status says
// stopping, and stopped when that is done.
func (m *Manager) Stop(req rocelink.SessionRequest) (rocelink.StreamStatus, error) {
	s, err := m.find("stop", req)
	if err != nil {
		return rocelink.StreamStatus{}, err
	}
	switch s.status.State {
	case rocelink.StreamStopping, rocelink.StreamStopped:
		return m.reply(s), nil
	case rocelink.StreamRunning:
	default:
		return rocelink.StreamStatus{}, rocelink.Refuse(rocelink.CodeState, "stop: the stream is %s, not running", s.status.State)
	}
	if err := m.fabric.Stop(s.index); err != nil {
		return rocelink.StreamStatus{}, m.refuse("stop", err)
	}
	s.expires = m.cfg.Now().Add(s.lease)
	m.event("stream-stop", s, "stopping")
	return m.reply(s), nil
}

// Renew extends the lease.
func (m *Manager) Renew(req rocelink.SessionRequest) (rocelink.StreamStatus, error) {
	s, err := m.find("renew", req)
	if err != nil {
		return rocelink.StreamStatus{}, err
	}
	s.expires = m.cfg.Now().Add(s.lease)
	return m.reply(s), nil
}

// Close ends a session. Closing what is closed already, or was lost with the
// fabric, succeeds.
func (m *Manager) Close(req rocelink.SessionRequest) (rocelink.StreamStatus, error) {
	if req.Epoch == m.Epoch() {
		if s := m.live(uint64(req.Session)); s != nil {
			m.close(s, rocelink.StreamCauseClosed, closedByHost)
			return m.reply(s), nil
		}
	}
	if s := m.past(uint64(req.Session)); s != nil {
		return m.reply(s), nil
	}
	return rocelink.StreamStatus{
		Version: rocelink.Version, Session: req.Session, State: rocelink.StreamClosed,
		Problem: "no such session here: nothing to close",
	}, nil
}

// Hold gives every running stream its full lease again. The board calls it while
// its NATS server is away: a host that is gone as well is found by the queue
// pair, which gets no acknowledgements.
func (m *Manager) Hold() {
	now := m.cfg.Now()
	for _, s := range m.sessions {
		if s != nil && s.status.State == rocelink.StreamRunning {
			s.expires = now.Add(s.lease)
		}
	}
}

// Expire closes the sessions that nobody renewed. It
// reports whether anything changed.
func (m *Manager) Expire() bool {
	now := m.cfg.Now()
	changed := false
	for _, s := range m.sessions {
		if s == nil || now.Before(s.expires) {
			continue
		}
		s.lapsed = true
		m.event("lease-lapsed", s, "not renewed for %v", s.lease)
		m.end(s, rocelink.StreamCauseLease, fmt.Sprintf("the lease of %v lapsed", s.lease))
		changed = true
	}
	return changed
}

// Sample takes the counters of every stream and of the port. It reports whether
// the state of a stream changed.
func (m *Manager) Sample() bool {
	if m.fabric == nil {
		return false
	}
	changed, any := false, false
	for _, s := range m.sessions {
		if s == nil {
			continue
		}
		any = true
		before := s.status.State
		if err := m.sample(s); err != nil {
			m.note(err)
			return changed
		}
		changed = changed || s.status.State != before
	}
	if !any {
		_, port, err := m.fabric.LatchQP(0)
		if err != nil {
			m.note(err)
			return changed
		}
		m.port = port
	}
	return changed
}

// Status lists the streams: open ones by queue pair, then those closed lately.
func (m *Manager) Status() []rocelink.StreamStatus {
	list := []rocelink.StreamStatus{}
	for _, s := range m.sessions {
		if s != nil {
			list = append(list, s.status)
		}
	}
	now := m.cfg.Now()
	for _, s := range m.closed {
		if now.Sub(s.ended) < m.cfg.KeepClosed {
			list = append(list, s.status)
		}
	}
	return list
}

// Count reports how many sessions are open.
func (m *Manager) Count() int {
	n := 0
	for _, s := range m.sessions {
		if s != nil {
			n++
		}
	}
	return n
}

// CloseAll stops every stream, gives what was taken up to drain to be
// delivered, and closes them. wait pauses between two looks.
func (m *Manager) CloseAll(reason string, drain time.Duration, wait func(time.Duration)) {
	if m.fabric != nil && drain > 0 {
		for _, s := range m.sessions {
			if s != nil && s.status.State == rocelink.StreamRunning {
				m.note(m.fabric.Stop(s.index))
			}
		}
		for until := m.cfg.Now().Add(drain); m.fault == nil; {
			m.Sample()
			if !slices.ContainsFunc(m.sessions, func(s *session) bool {
				return s != nil && (s.status.State == rocelink.StreamStopping || s.status.State == rocelink.StreamRunning)
			}) || !m.cfg.Now().Before(until) {
				break
			}
			wait(time.Millisecond)
		}
	}
	for _, s := range m.sessions {
		if s != nil {
			m.end(s, rocelink.StreamCauseClosed, reason)
		}
	}
}

// end closes a session, or only forgets it when the fabric stopped answering:
// with many sessions the bounds of all steps would add up to minutes.
func (m *Manager) end(s *session, cause, reason string) {
	if m.fault != nil {
		m.retire(s, cause, fmt.Sprintf("%s; the fabric does not answer: %v", reason, m.fault))
		return
	}
	m.close(s, cause, reason)
}

// reply is the status as an answer of its own, sampled now if that is possible.
func (m *Manager) reply(s *session) rocelink.StreamStatus {
	if s.status.State != rocelink.StreamClosed && m.fabric != nil {
		m.note(m.sample(s))
	}
	st := s.status
	st.Version = rocelink.Version
	return st
}

// close stops a stream and takes it out of the fabric. Every step runs whatever
// the ones before did.
func (m *Manager) close(s *session, cause, reason string) {
	var problems []error
	step := func(name string, err error) {
		if err != nil {
			m.note(err)
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	if s.status.State == rocelink.StreamRunning {
		step("stop", m.fabric.Stop(s.index))
	}
	step("last counters", m.sample(s))
	step("reset stream", m.fabric.ResetStream(s.index))
	step("reset queue pair", m.fabric.ResetQP(s.index))
	if err := errors.Join(problems...); err != nil {
		reason = fmt.Sprintf("%s; closing it failed: %v", reason, err)
	}
	m.retire(s, cause, reason)
}

// retire moves a session to the closed ones.
func (m *Manager) retire(s *session, cause, reason string) {
	s.ended, s.reason = m.cfg.Now(), reason
	// What went wrong before is more telling than the closing.
	s.status.Cause = cmp.Or(s.status.Cause, cause)
	if reason != closedByHost {
		s.status.Problem = cmp.Or(s.status.Problem, reason)
	}
	s.status.State = rocelink.StreamClosed
	m.sessions[s.index] = nil
	m.closed = append(m.closed, s)
	if len(m.closed) > maxHistory {
		m.closed = slices.Delete(m.closed, 0, len(m.closed)-maxHistory)
	}
	m.event("stream-close", s, "%s", reason)
}
