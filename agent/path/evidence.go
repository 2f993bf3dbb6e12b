package path

import (
	"time"

	"rocelink"
	"rocelink/agent/heard"
)

// evidence is everything known of one stream.
type evidence struct {
	view heard.View
	key  key

	board  *heard.Board           // nil: never heard
	host   *heard.Host            // nil: never heard
	live   *rocelink.StreamStatus // the open session; nil if there is none
	past   *rocelink.StreamStatus // the session closed last; nil if there is none
	hosts  *rocelink.HostStream   // nil: the host does not list it
	window *heard.Window          // of the same session, else nil

	at   *rocelink.StreamStatus // the session looked at: live, else past
	same bool                   // board and host speak of the same session

	// What was counted over a time of about a second, by the sender's clock.
	onBoard *boardSpan
	onHost  *hostSpan
	// idle is how long, at least, the source gave nothing.
	idle time.Duration
}

// boardSpan are the counters of a board's stream and port between two samples.
type boardSpan struct {
	seconds  float64
	old, now rocelink.StreamStatus
	from, to heard.BoardHeard
}

// hostSpan are those of a host.
type hostSpan struct {
	seconds  float64
	old, now rocelink.HostStream
	from, to heard.HostHeard
}

// Bounds of what is called a rate.
const (
	shortest = 400 * time.Millisecond // between two samples
	wanted   = 900 * time.Millisecond
	longest  = 15 * time.Second
	// settled is more than a record is under way on a network that works, and
	// more than a receive loop that runs takes to see what has arrived. A sample
	// counts as earlier than another only with this margin.
	settled = time.Second
)

func (e *evidence) collect() {
	if e.at = e.live; e.at == nil {
		e.at = e.past
	}
	if e.window != nil && (e.hosts == nil || e.window.Session != e.hosts.Session || e.view.Now.Sub(e.window.At) > e.view.Stale) {
		e.window = nil
	}
	e.same = e.at != nil && e.hosts != nil && e.at.Session == e.hosts.Session
	e.spanBoard()
	e.spanHost()
}

// fits says whether a sample of age d before the newest makes a rate, and
// whether it is one to stop at.
func fits(d time.Duration) (usable, best bool) {
	return d >= shortest && d <= longest, d >= wanted
}

func (e *evidence) spanBoard() {
	if e.board == nil || e.at == nil {
		return
	}
	last := e.board.Last()
	for _, b := range e.board.Heard[1:] {
		d := between(b.SampledMS, last.SampledMS)
		usable, best := fits(d)
		old := session(b.Streams, e.at.Session)
		if !usable || old == nil || !ascends(old, e.at) {
			continue
		}
		if e.onBoard == nil || e.onBoard.seconds < wanted.Seconds() {
			e.onBoard = &boardSpan{seconds: d.Seconds(), old: *old, now: *e.at, from: b, to: last}
		}
		if best && old.SourceFrames == e.at.SourceFrames && old.State == rocelink.StreamRunning {
			e.idle = max(e.idle, d)
		}
	}
}

func (e *evidence) spanHost() {
	if e.host == nil {
		return
	}
	last := e.host.Last()
	for _, h := range e.host.Heard[1:] {
		d := between(h.UptimeMS, last.UptimeMS)
		usable, best := fits(d)
		if !usable {
			continue
		}
		span := hostSpan{seconds: d.Seconds(), from: h, to: last}
		if e.hosts != nil {
			old := hostStream(h.Streams, e.key, e.hosts.Session)
			if old == nil || old.Total.Messages > e.hosts.Total.Messages || old.Total.Bytes > e.hosts.Total.Bytes || old.Total.Lost() > e.hosts.Total.Lost() {
				continue
			}
			span.old, span.now = *old, *e.hosts
		}
		e.onHost = &span
		if best {
			return
		}
	}
}

// between is the time from one uptime to another of the same program.
func between(from, to int64) time.Duration {
	if to < from || to-from > longest.Milliseconds() {
		return 0
	}
	return time.Duration(to-from) * time.Millisecond
}

// ascends reports whether no counter went back. Those of a session never do; a
// record in which they did is not believed.
func ascends(old, now *rocelink.StreamStatus) bool {
	for _, c := range [][2]rocelink.Count{
		{old.SourceFrames, now.SourceFrames}, {old.SourceDropped, now.SourceDropped}, {old.FramesPosted, now.FramesPosted},
		{old.FramesDone, now.FramesDone}, {old.BytesDone, now.BytesDone}, {old.PacketsSent, now.PacketsSent},
		{old.PacketsResent, now.PacketsResent}, {old.PacketsAcked, now.PacketsAcked}, {old.Timeouts, now.Timeouts},
		{old.SequenceNAKs, now.SequenceNAKs}, {old.RNRNAKs, now.RNRNAKs}, {old.RNRMessages, now.RNRMessages},
		{old.FatalNAKs, now.FatalNAKs}, {old.ReadGood, now.ReadGood}, {old.ReadBad, now.ReadBad}, {old.CreditStalls, now.CreditStalls},
	} {
		if c[0] > c[1] {
			return false
		}
	}
	return true
}

func session(list []rocelink.StreamStatus, id rocelink.Count) *rocelink.StreamStatus {
	for i := range list {
		if list[i].Session == id {
			return &list[i]
		}
	}
	return nil
}

func hostStream(list []rocelink.HostStream, k key, id rocelink.Count) *rocelink.HostStream {
	for i := range list {
		if s := &list[i]; s.Stream == k.stream && s.Board == k.board && s.Session == id {
			return s
		}
	}
	return nil
}

func (e *evidence) session() rocelink.Count {
	switch {
	case e.live != nil:
		return e.live.Session
	case e.hosts != nil && e.hosts.Session != 0:
		return e.hosts.Session
	case e.at != nil:
		return e.at.Session
	}
	return 0
}

func (e *evidence) state() string {
	switch {
	case e.live != nil:
		return e.live.State
	case e.hosts != nil:
		return e.hosts.State
	case e.at != nil:
		return e.at.State
	}
	return ""
}

func (e *evidence) verb() rocelink.Verb {
	switch {
	case e.at != nil:
		return e.at.Verb
	case e.hosts != nil:
		return e.hosts.Verb
	}
	return ""
}

// goodput is the payload that arrived: as the host counts it, or for READ and
// without a host as the board does.
func (e *evidence) goodput() *float64 {
	switch b, h := e.onBoard, e.onHost; {
	case h != nil && e.hosts != nil && e.verb() != rocelink.VerbRead:
		v := 8 * float64(h.now.Total.Bytes-h.old.Total.Bytes) / h.seconds
		return &v
	case b != nil:
		v := 8 * float64(b.now.BytesDone-b.old.BytesDone) / b.seconds
		return &v
	}
	return nil
}

func (e *evidence) lost() (n rocelink.Count) {
	if e.hosts != nil {
		n = e.hosts.Total.Lost()
	}
	if e.at != nil {
		n += e.at.ReadBad + e.at.SourceDropped
	}
	return n
}

// moved is what a counter of the stream grew by on the board; 0 when unknown.
func (e *evidence) moved(of func(*rocelink.StreamStatus) rocelink.Count) rocelink.Count {
	if e.onBoard == nil {
		return 0
	}
	return of(&e.onBoard.now) - of(&e.onBoard.old)
}

// seconds is the length of the board's span; 0 when unknown.
func (e *evidence) seconds() float64 {
	if e.onBoard == nil {
		return 0
	}
	return e.onBoard.seconds
}

// outstanding is how many packets and frames are under way.
func (e *evidence) outstanding() (packets, frames rocelink.Count) {
	if e.at == nil {
		return 0, 0
	}
	return less(e.at.PacketsSent, e.at.PacketsAcked), less(e.at.SourceFrames, e.at.FramesDone)
}

// less is a - b, 0 where b is more: the two were not latched at one instant.
func less(a, b rocelink.Count) rocelink.Count {
	if b >= a {
		return 0
	}
	return a - b
}

// notTaken is how many frames the board had acknowledged when the host, surely
// later, had not taken them: what the newest board sample counts that is older
// than the host's record by more than records are under way. compared is false
// while there are no two such records.
//
// The device acknowledges a message after it has placed it, and the loop adds
// its completion to the totals within a millisecond or so, so as long as the
// loop runs this is 0, whatever the rate.
func (e *evidence) notTaken() (n rocelink.Count, late time.Duration, compared bool) {
	if !e.same || e.verb() == rocelink.VerbRead || e.board == nil || e.host == nil {
		return 0, 0, false
	}
	taken := e.host.Last().At.Add(-settled)
	for _, b := range e.board.Heard {
		// Arrival is later than the sample, so a record that arrived in time was
		// taken in time.
		s := session(b.Streams, e.at.Session)
		if s == nil || b.At.After(taken) {
			continue
		}
		return less(s.FramesDone, e.hosts.Total.Messages+e.hosts.Total.Errors), e.host.Last().At.Sub(b.At), true
	}
	return 0, 0, false
}

// portCounter reads a counter of the board's port: of the MAC if it counts it,
// else of the core.
func macOut(b *rocelink.BoardStatus) (rocelink.Count, bool) {
	if v, ok := b.Link.Counters["tx_packets"]; ok {
		return v, true
	}
	v, ok := b.Fabric.Counters["tx_packets"]
	return v, ok
}

// nicIn reads what the host's device received, under the names of the software
// provider and of sysfs.
func nicIn(h *rocelink.HostStatus) (rocelink.Count, bool) {
	for _, name := range []string{"port_rcv_packets", "rx_packets", "rcvd_pkts"} {
		if v, ok := h.Device.Counters[name]; ok {
			return v, true
		}
	}
	return 0, false
}

func (e *evidence) macMoved() (rocelink.Count, bool) {
	if e.onBoard == nil {
		return 0, false
	}
	old, ok := macOut(&e.onBoard.from.BoardStatus)
	now, ok2 := macOut(&e.onBoard.to.BoardStatus)
	return less(now, old), ok && ok2 && now >= old
}

func (e *evidence) nicMoved() (rocelink.Count, bool) {
	if e.onHost == nil {
		return 0, false
	}
	old, ok := nicIn(&e.onHost.from.HostStatus)
	now, ok2 := nicIn(&e.onHost.to.HostStatus)
	return less(now, old), ok && ok2 && now >= old
}

// deviceMoved is what a counter of the host's device grew by.
func (e *evidence) deviceMoved(names ...string) (n rocelink.Count) {
	if e.onHost == nil {
		return 0
	}
	for _, name := range names {
		n += less(e.onHost.to.Device.Counters[name], e.onHost.from.Device.Counters[name])
	}
	return n
}

// portMoved is the same of the board's port.
func (e *evidence) portMoved(of func(*rocelink.BoardStatus) rocelink.Count) rocelink.Count {
	if e.onBoard == nil {
		return 0
	}
	return less(of(&e.onBoard.to.BoardStatus), of(&e.onBoard.from.BoardStatus))
}

// unseen is how many packets of the stream left the board between two samples
// that both lie within a time in which the host's device received nothing at
// all; seconds is that time. Arrival is no earlier than the sample, so what was
// sent between the samples had arrived by then, if it arrived.
func (e *evidence) unseen() (sent rocelink.Count, seconds float64) {
	if e.host == nil || e.board == nil || e.live == nil {
		return 0, 0
	}
	last := e.host.Last()
	count, counted := nicIn(&last.HostStatus)
	if !counted {
		return 0, 0
	}
	from := last
	for _, h := range e.host.Heard[1:] {
		if n, ok := nicIn(&h.HostStatus); !ok || n != count {
			break
		}
		from = h
	}
	var newest, oldest *rocelink.StreamStatus
	for _, b := range e.board.Heard {
		s := session(b.Streams, e.live.Session)
		if s == nil || b.At.After(last.At.Add(-transit)) {
			continue
		}
		if b.Sampled().Before(from.At) {
			break
		}
		if newest == nil {
			newest = s
		}
		oldest = s
	}
	if newest == nil || !ascends(oldest, newest) {
		return 0, 0
	}
	return newest.PacketsSent - oldest.PacketsSent + newest.PacketsResent - oldest.PacketsResent, last.At.Sub(from.At).Seconds()
}

// transit is more than a packet is under way, by far.
const transit = 300 * time.Millisecond

// held is how many slots the consumer held of how many, as of the last window.
func (e *evidence) held() (held, slots rocelink.Count, known bool) {
	if e.window == nil || e.window.Slots == 0 {
		return 0, 0, false
	}
	return min(e.window.HeldSlots, e.window.Slots), e.window.Slots, true
}

// linkFor is how long the link has been as it is. Both times are the board's;
// a clock that was set in between gives nonsense, which is left out.
func (e *evidence) linkFor() (time.Duration, bool) {
	b := e.board.Last()
	d := b.Time.Sub(b.Link.Since)
	if b.Link.Since.IsZero() || d < 0 || b.UptimeMS < 0 || d/time.Millisecond > time.Duration(b.UptimeMS)+1000 {
		return 0, false
	}
	return d + e.board.Silent(e.view.Now), true
}
