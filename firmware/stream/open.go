package stream

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"rocelink"
	"rocelink/firmware/rocecore"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// fields are the names in a request of the settings the driver refuses.
var fields = map[string]string{
	"path MTU": "mtu", "timeout": "timeout", "retry count": "retry_count", "RNR retry": "rnr_retry",
	"remote QPN": "qpn", "window": "window", "remote MAC": "mac", "remote address": "address",
	"verb": "verb", "pattern": "source.kind", "source": "source.kind", "frame bytes": "region.frame_bytes",
	"slots": "region.slots", "stride": "region.stride", "address": "region.address", "credit": "region.credit",
}

func bad(field string, value any, want string, args ...any) error {
	return rocelink.Refuse(rocelink.CodeBadRequest, "open: %s %v: want %s", field, value, fmt.Sprintf(want, args...))
}

// code checks an optional IBTA code.
func code(field string, p *int, missing, most int) (uint8, error) {
	if p == nil {
		return uint8(missing), nil
	}
	if *p < 0 || *p > most {
		return 0, bad(field, *p, "0 to %d", most)
	}
	return uint8(*p), nil
}

// plan is a checked request.
type plan struct {
	qp     rocecore.QP
	stream rocecore.Stream
	lease  time.Duration
}

// check turns a request into settings of the fabric. Nothing is written.
func (m *Manager) check(req rocelink.OpenRequest) (plan, error) {
	var p plan
	if err := rocelink.CheckName("host", req.Host); err != nil {
		return p, err
	}
	if err := rocelink.CheckName("stream", req.Stream); err != nil {
		return p, err
	}
	if !req.Verb.Valid() {
		return p, bad("verb", fmt.Sprintf("%.20q", req.Verb), "one of %v", rocelink.Verbs)
	}
	switch lease := req.LeaseMillis; {
	case lease == 0:
		p.lease = m.cfg.Lease
	case lease < rocelink.MinLeaseMillis || lease > rocelink.MaxLeaseMillis:
		return p, bad("lease_ms", lease, "%d to %d", rocelink.MinLeaseMillis, rocelink.MaxLeaseMillis)
	default:
		p.lease = time.Duration(lease) * time.Millisecond
	}
	if err := m.checkQP(req, &p.qp); err != nil {
		return p, err
	}
	if err := m.checkStream(req, &p.stream); err != nil {
		return p, err
	}
	return p, nil
}

func (m *Manager) checkQP(req rocelink.OpenRequest, q *rocecore.QP) error {
	info := m.fabric.Info()
	mtu := roce.MTU(req.MTU)
	if !mtu.Valid() {
		return bad("mtu", req.MTU, "256, 512, 1024, 2048 or 4096")
	}
	if m.cfg.MTU != 0 {
		mtu = min(mtu, m.cfg.MTU)
	}
	mac, err := roce.ParseMAC(req.MAC)
	if err != nil {
		return bad("mac", fmt.Sprintf("%.40q", req.MAC), "an Ethernet address such as 02:00:00:00:00:0a")
	}
	addr, err := netip.ParseAddr(req.Address)
	if err != nil {
		return bad("address", fmt.Sprintf("%.80q", req.Address), "an IP address")
	}
	addr = addr.Unmap()
	if addr.Is4() != m.cfg.Address.Unmap().Is4() {
		return bad("address", addr, "the address family of the board's %v", m.cfg.Address)
	}
	if addr == m.cfg.Address.Unmap() {
		return bad("address", addr, "the host's own address: this is the board's")
	}
	timeout, err := code("timeout", req.Timeout, rocelink.DefaultTimeout, 31)
	if err != nil {
		return err
	}
	retry, err := code("retry_count", req.RetryCount, rocelink.DefaultRetryCount, 7)
	if err != nil {
		return err
	}
	rnr, err := code("rnr_retry", req.RNRRetry, rocelink.DefaultRNRRetry, 7)
	if err != nil {
		return err
	}
	// The board answers with PSNs of its own and sends no requests to the
	// host's, but a PSN that cannot exist shows a broken peer.
	if req.PSN > roce.PSNMask {
		return bad("psn", fmt.Sprintf("%#x", req.PSN), "0 to %#x", roce.PSNMask)
	}
	window := info.MaxWindow
	switch {
	case req.Window < 0:
		return bad("window", req.Window, "0 (the board chooses) or more")
	case req.Window > 0:
		window = uint32(min(int64(req.Window), int64(window)))
	}
	*q = rocecore.QP{
		MTU: min(mtu, info.MaxMTU), Timeout: timeout, RetryCount: retry, RNRRetry: rnr,
		LocalQPN: 2, RemoteQPN: roce.QPN(req.QPN), Window: window, SourcePort: minSourcePort,
		TrafficClass: m.cfg.TrafficClass, HopLimit: hopLimit, PKey: pKey, RemoteMAC: mac, RemoteIP: addr,
	}
	return m.named(m.fabric.CheckQP(*q))
}

func (m *Manager) checkStream(req rocelink.OpenRequest, s *rocecore.Stream) error {
	r, src := req.Region, req.Source
	*s = rocecore.Stream{
		CRC: src.CRC, FrameBytes: r.FrameBytes, Slots: r.Slots, Stride: r.Stride,
		Base: uint64(r.Address), RKey: r.RKey, Credit: uint64(r.Credit),
		RateKbps: src.RateKbps, Burst: src.Burst, Count: uint64(src.Count),
	}
	switch req.Verb {
	case rocelink.VerbSend:
		s.Verb = regs.StreamConfigVerbSend
	case rocelink.VerbSendImm:
		s.Verb = regs.StreamConfigVerbSendImm
	case rocelink.VerbWrite:
		s.Verb = regs.StreamConfigVerbWrite
	case rocelink.VerbWriteImm:
		s.Verb = regs.StreamConfigVerbWriteImm
	case rocelink.VerbRead:
		s.Verb = regs.StreamConfigVerbRead
	}
	// A host that sleeps on solicited events wakes up for each frame.
	s.Solicited = req.Verb != rocelink.VerbRead
	switch src.Kind {
	case rocelink.SourceCounter, "":
		s.Pattern = regs.StreamConfigPatternCounter
	case rocelink.SourcePRBS31:
		s.Pattern = regs.StreamConfigPatternPRBS31
	case rocelink.SourceExternal:
		s.External = true
		if src.Count != 0 {
			return bad("source.count", src.Count, "0: an external source ends by itself")
		}
	default:
		return bad("source.kind", fmt.Sprintf("%.20q", src.Kind), "%s, %s or %s", rocelink.SourceCounter, rocelink.SourcePRBS31, rocelink.SourceExternal)
	}
	switch {
	case r.FrameBytes > rocelink.MaxFrameBytes:
		return bad("region.frame_bytes", r.FrameBytes, "at most %d", rocelink.MaxFrameBytes)
	case r.Slots == 0:
		return bad("region.slots", r.Slots, "1 or more: receives for send, slots of the ring otherwise")
	case !req.Verb.Ring() && r.Stride != 0 && r.Stride < r.FrameBytes:
		return bad("region.stride", r.Stride, "at least the frame's %d bytes", r.FrameBytes)
	}
	if !req.Verb.Ring() {
		// The fabric does not use them; it must not keep those of a ring.
		s.Slots, s.Stride, s.Base, s.RKey = 0, 0, 0, 0
	}
	return m.named(m.fabric.CheckStream(*s))
}

// named gives an error of the driver the name of the request's field.
func (m *Manager) named(err error) error {
	if err == nil {
		return nil
	}
	var s *rocecore.SettingError
	if errors.As(err, &s) {
		if f, ok := fields[s.Setting]; ok {
			return bad(f, s.Value, "%s", s.Want)
		}
	}
	return m.refuse("open", err)
}

// Open sets a stream up. A session of the same host and stream that is still
// there is closed first: its host is not using it any more.
func (m *Manager) Open(req rocelink.OpenRequest) (rocelink.OpenReply, error) {
	if m.fabric == nil {
		return rocelink.OpenReply{}, rocelink.Refuse(rocelink.CodeNoFabric, "open: %s", m.missing)
	}
	p, err := m.check(req)
	if err != nil {
		return rocelink.OpenReply{}, err
	}
	if up, why := m.cfg.LinkUp(); !up {
		return rocelink.OpenReply{}, rocelink.Refuse(rocelink.CodeLinkDown, "open: the link is not up: %s", why)
	}
	for _, s := range m.sessions {
		if s != nil && s.req.Host == req.Host && s.req.Stream == req.Stream {
			m.end(s, rocelink.StreamCauseClosed, "replaced by a new open of the same host and stream")
		}
	}
	index, err := m.place(p)
	if err != nil {
		return rocelink.OpenReply{}, err
	}
	p.qp.LocalQPN = m.freeQPN()
	p.qp.StartPSN = roce.PSN(m.random()) & roce.PSNMask
	p.qp.SourcePort = minSourcePort | uint16(uint32(p.qp.LocalQPN)*31^uint32(p.qp.RemoteQPN))&(0xFFFF-minSourcePort)
	if err := m.setUp(index, p); err != nil {
		return rocelink.OpenReply{}, err
	}
	now := m.cfg.Now()
	s := &session{
		id: m.freeID(), index: index, req: req, mtu: p.qp.MTU, lease: p.lease,
		readyBy: now.Add(p.lease), expires: now.Add(p.lease),
		status: rocelink.StreamStatus{
			Stream: req.Stream, Host: req.Host, Verb: req.Verb, State: rocelink.StreamOpen,
			QPN: uint32(p.qp.LocalQPN), PeerQPN: req.QPN,
			NextPSN: uint32(p.qp.StartPSN), UnackedPSN: uint32(p.qp.StartPSN),
		},
	}
	s.status.Session = rocelink.Count(s.id)
	m.sessions[index] = s
	m.event("stream-open", s, "%s to %s, queue pair %#x to %#x, path MTU %d", req.Verb, req.Address, uint32(p.qp.LocalQPN), req.QPN, p.qp.MTU)
	return rocelink.OpenReply{
		Version: rocelink.Version, Session: rocelink.Count(s.id), Epoch: m.Epoch(),
		QPN: uint32(p.qp.LocalQPN), PSN: uint32(p.qp.StartPSN), MTU: int(p.qp.MTU),
		Address: m.cfg.Address.String(), MAC: m.cfg.MAC.String(), LeaseMillis: int(p.lease.Milliseconds()),
	}, nil
}

// place finds a free queue pair.
func (m *Manager) place(p plan) (int, error) {
	free := -1
	for i, s := range m.sessions {
		switch {
		case s == nil && free < 0:
			free = i
		case s != nil && p.stream.External && s.req.Source.Kind == rocelink.SourceExternal:
			return 0, rocelink.Refuse(rocelink.CodeBusy, "open: the external source feeds stream %s of host %s: close that first", s.req.Stream, s.req.Host)
		}
	}
	if free < 0 {
		return 0, rocelink.Refuse(rocelink.CodeBusy, "open: all %d queue pairs are taken: close a stream first", len(m.sessions))
	}
	return free, nil
}

// setUp programs queue pair and stream. Both are reset before, whatever was
// there: a PSN is never carried over. What was done is undone in reverse when a
// step fails.
func (m *Manager) setUp(i int, p plan) error {
	var done []func(int) error
	for _, step := range []struct {
		name string
		do   func() error
		undo func(int) error
	}{
		{"reset stream", func() error { return m.fabric.ResetStream(i) }, nil},
		{"reset queue pair", func() error { return m.fabric.ResetQP(i) }, nil},
		{"configure queue pair", func() error { return m.fabric.ConfigureQP(i, p.qp) }, m.fabric.ResetQP},
		{"configure stream", func() error { return m.fabric.ConfigureStream(i, p.stream) }, m.fabric.ResetStream},
	} {
		if err := step.do(); err != nil {
			refusal := m.refuse("open: "+step.name, err)
			for _, undo := range slices.Backward(done) {
				if err := undo(i); err != nil {
					m.note(err)
					refusal.Text += fmt.Sprintf("; undoing failed: %v", err)
				}
			}
			return refusal
		}
		if step.undo != nil {
			done = append(done, step.undo)
		}
	}
	return nil
}

// freeQPN returns a random QPN that no open session has.
func (m *Manager) freeQPN() roce.QPN {
	for {
		q := uint32(m.random()) & roce.QPNMask
		taken := slices.ContainsFunc(m.sessions, func(s *session) bool { return s != nil && s.status.QPN == q })
		if q >= 2 && !taken {
			return roce.QPN(q)
		}
	}
}

// freeID returns a session number that was not used lately.
func (m *Manager) freeID() uint64 {
	for {
		if id := m.random(); m.live(id) == nil && m.past(id) == nil {
			return id
		}
	}
}
