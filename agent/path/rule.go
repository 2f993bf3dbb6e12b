package path

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rocelink"
)

// match is what a rule found.
type match struct {
	stage    Name     // that falls behind; "" when none can be named
	severity Severity // "": the rule's
	text     string
	remedy   string // "": the rule's
}

// Rule is one cause that can be told apart.
type Rule struct {
	Name     string // stable, for programs
	Severity Severity
	Remedy   string

	test func(*evidence) *match
}

// Thresholds of the rules.
const (
	freshFor    = 10 * time.Second // a restart is why things do not run yet
	backFor     = 30 * time.Second // a restart is worth a word
	oftenStarts = 3                // restarts within a minute that are more than an accident
	rnrShare    = 0.01             // of messages that waited for a receive
	lossShare   = 0.001            // of packets sent again: more is a warning
	stallShare  = 0.1              // of frames that waited for a slot
	heldShare   = 0.75             // of slots in the consumer's hands: it is the consumer
)

// Rules are tried in order; the first that matches is the diagnosis. What comes
// first hides what comes after: with the link down nothing is acknowledged
// either.
var Rules = []Rule{
	{"nats-down", Warning, "check that the NATS server runs and that its address is right; streams that run go on without it", natsDown},
	{"name-twice", Critical, "give each a name of its own; until then their records cannot be told apart", nameTwice},
	{"board-unheard", Critical, "check the board's name, its power and network, and that it uses this NATS server", boardUnheard},
	{"board-stale", Critical, "check the board's power and its network; look at its console", boardStale},
	{"host-stale", Critical, "check that rocelinkd runs and reaches the NATS server", hostStale},
	{"board-restarted", Warning, "wait: the host opens the stream again by itself; look at the board's log for the reason", boardRestarted},
	{"fabric-missing", Critical, "load the bitstream that belongs to this version, and see the board's log", fabricMissing},
	{"no-clock", Critical, "check the clock chip and its programming: the transceivers need a running reference clock", linkCause(rocelink.CauseNoClock)},
	{"no-module", Critical, "plug a module or cable into the cage", linkCause(rocelink.CauseNoModule)},
	{"module-failed", Critical, "re-seat the module; try another one", linkCause(rocelink.CauseModuleFailed)},
	{"module-low-power", Critical, "take the module out of low power and reset; see that the cage may supply its power class", linkCause(rocelink.CauseLowPower)},
	{"tx-disabled", Critical, "switch the module's transmitter on; a laser fault needs another module", linkCause(rocelink.CauseTxDisabled)},
	{"lane-dark", Critical, "clean and re-seat the fibre; check which lanes of module and breakout are lit", linkCause(rocelink.CauseNoLight)},
	{"wrong-lane-rate", Critical, "use a module for four lanes of 25 Gb/s at both ends", linkCause(rocelink.CauseWrongRate)},
	{"fec-mismatch", Critical, "set the same FEC at both ends; SR4 modules and copper cables need RS-FEC", linkCause(rocelink.CauseFECMismatch)},
	{"link-no-signal", Critical, "check module, cable and low power mode; if the module sees light, set the same FEC at both ends", linkCause(rocelink.CauseNoSignal)},
	{"link-not-aligned", Critical, "check the order of lanes and breakout cables, and FEC at both ends", linkCause(rocelink.CauseNotAligned)},
	{"link-remote-fault", Critical, "check our transmitter (TX disable, low power mode), the fibre, and the peer's receiver", linkCause(rocelink.CausePeerBlind)},
	{"link-high-ber", Critical, "clean the fibre ends, try another module or cable, check FEC at both ends", linkCause(rocelink.CauseHighBER)},
	{"mac-missing", Critical, "load the bitstream that the board description is for", linkCause(rocelink.CauseMACMissing)},
	{"link-down", Critical, "check cable, module and the port at the other end", linkDown},
	{"device-down", Critical, "check the cable at the host, and `rocectl doctor` there", deviceDown},
	{"stream-failed", Critical, "correct the stream's settings and start rocelinkd again", streamFailed},
	{"wrong-rkey", Critical, "open the stream again; if it comes back, the region that was given to the board is not the one that is registered (rkey, address, length, remote access)", queuePairError("RemoteAccess")},
	{"invalid-request", Critical, "make the frame of the stream no longer than its slots, and use the same path MTU at both ends", queuePairError("RemoteInvalidRequest")},
	{"remote-operational", Critical, "see the host's log and the kernel's: its queue pair could not carry a request out", queuePairError("RemoteOperational")},
	{"bad-response", Critical, "capture the packets and run `rocectl decode`: a response came that no request explains", queuePairError("BadResponse")},
	{"no-receive", Critical, "see why the host posts none: its loop may have ended, or its consumer keeps every slot", noReceive},
	{"nothing-arrives", Critical, "check switch, VLAN, MAC and IP addresses, and the firewall for UDP port 4791, between board and host", nothingArrives},
	{"wrong-psn", Critical, "open the stream again: both ends then take fresh numbers; if it comes back, capture the packets and run `rocectl decode`", wrongPSN},
	{"peer-silent", Critical, "check that the host runs and that its port is up; then the switch between", peerSilent},
	{"fabric-error", Critical, "see the board's log; a reset closes all its streams and sets the fabric up again", fabricError},
	{"session-mismatch", Critical, "restart the stream at the host: board and host keep different sessions", sessionMismatch},
	{"host-unheard", Critical, "check that rocelinkd of that host runs and uses this NATS server", hostUnheard},
	{"stream-closed", Warning, "start the stream again at the host", streamClosed},
	{"stream-waiting", Warning, "the host tries again by itself; remove the reason", streamWaiting},
	{"mac-silent", Critical, "see the board's log and its link; a reset sets the MAC up again", macSilent},
	{"frames-lost", Critical, "see the host's log; with overrun give the stream more slots or a faster consumer, with corrupt check that source and sink expect the same pattern", framesLost},
	{"rnr-storm", Warning, "give the stream more slots, or the host a faster consumer; pace the source", rnrStorm},
	{"slow-consumer", Warning, "make the consumer faster, give the stream more slots, or pace the source", slowConsumer},
	{"completions-behind", Critical, "see the host's log: its receive loop does not take what has arrived", completionsBehind},
	{"link-poor", Warning, "clean the fibre ends, try another module or cable, check FEC at both ends", linkPoor},
	{"loss", Warning, "check cables, modules and FEC, and drops of the switch: RoCE wants priority flow control or ECN there", loss},
	{"source-dropping", Critical, "the path takes less than the source makes: lower its rate, or widen what holds it up", sourceDropping},
	{"stalled", Critical, "see the logs of board and host; `rocectl decode` of a capture shows what is on the wire", stalled},
	{"source-idle", Warning, "check what feeds the source; rocelink waits for frames", sourceIdle},
	{"lost-earlier", Warning, "nothing more is lost at present; the events say when it was", lostEarlier},
	{"stream-ended", Note, "", streamEnded},
	{"stream-open", Note, "", streamOpen},
	{"no-stream", Note, "", noStream},
	{"measuring", Note, "", measuring},
	{"board-back", Note, "", boardBack},
	{"resent", Note, "", resentFew},
	{"healthy", Healthy, "", healthy},
}

// diagnose tries the rules in order. The last always matches.
func (e *evidence) diagnose() (Diagnosis, Name) {
	for _, r := range Rules {
		if m := r.test(e); m != nil {
			d := Diagnosis{Rule: r.Name, Severity: cmp.Or(m.severity, r.Severity), Text: m.text, Remedy: cmp.Or(m.remedy, r.Remedy)}
			if d.Severity == Healthy || d.Severity == Note {
				return d, ""
			}
			return d, m.stage
		}
	}
	return Diagnosis{Rule: "healthy", Severity: Healthy}, "" // not reached: healthy matches
}

// brief keeps what is shown of another's text within bounds.
func brief(text string) string {
	const most = 300
	if len(text) <= most {
		return strings.ToValidUTF8(text, "?")
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

func natsDown(e *evidence) *match {
	if e.view.Connected {
		return nil
	}
	text := "no connection to a NATS server"
	if !e.view.Since.IsZero() {
		text += " " + e.since(e.view.Now.Sub(e.view.Since))
	}
	return &match{text: text + ": the figures are old, and what happens now is not known"}
}

func nameTwice(e *evidence) *match {
	switch {
	case e.board != nil && e.board.Twice:
		return &match{text: fmt.Sprintf("two boards publish under the name %s", e.key.board)}
	case e.host != nil && e.host.Twice:
		return &match{text: fmt.Sprintf("two hosts publish under the name %s", e.key.host)}
	}
	return nil
}

func boardUnheard(e *evidence) *match {
	if e.key.board == "" || e.board != nil {
		return nil
	}
	text := fmt.Sprintf("board %s was never heard", e.key.board)
	if e.hosts != nil && e.hosts.Problem != "" {
		text += ": " + brief(e.hosts.Problem)
	}
	return &match{stage: Source, text: text}
}

func boardStale(e *evidence) *match {
	if e.board == nil {
		return nil
	}
	silent := e.board.Silent(e.view.Now)
	if silent < e.view.Stale {
		return nil
	}
	return &match{stage: Source, text: fmt.Sprintf("board %s has not been heard %s: it is off, or has no network", e.key.board, e.since(silent))}
}

func hostStale(e *evidence) *match {
	if e.host == nil {
		return nil
	}
	silent := e.host.Silent(e.view.Now)
	if silent < e.view.Stale {
		return nil
	}
	return &match{stage: Completions, text: fmt.Sprintf("host %s has not been heard %s: its rocelinkd ended, or has no network", e.key.host, e.since(silent))}
}

// restarted is how long ago the board began anew, if that was lately: as seen
// here, or as its uptime tells when the host has been up for longer.
func (e *evidence) restarted(within time.Duration) (ago time.Duration, fabric, lately bool) {
	if e.board == nil {
		return 0, false, false
	}
	b := e.board.Last()
	up := time.Duration(b.UptimeMS)*time.Millisecond + e.board.Silent(e.view.Now)
	if e.board.Starts > 0 {
		ago = e.view.Now.Sub(e.board.Started)
		return ago, e.board.FabricOnly, ago < within
	}
	again := e.hosts != nil && (e.hosts.Opens > 1 || e.hosts.Opens == 1 && e.hosts.State == "waiting")
	return up, false, b.UptimeMS >= 0 && up < within && again && e.host.Last().UptimeMS > b.UptimeMS+1000
}

// runs reports whether both ends keep the same session and frames get through.
func (e *evidence) runs() bool {
	return e.live != nil && e.same && e.live.State == rocelink.StreamRunning && e.live.FramesDone > 0 &&
		(e.onBoard == nil || e.moved(framesDone) > 0)
}

func boardRestarted(e *evidence) *match {
	ago, fabric, lately := e.restarted(freshFor)
	often := e.board != nil && e.board.StartsLately >= oftenStarts
	what := "restarted"
	if fabric {
		what = "set its fabric up again"
	}
	switch {
	case often:
		return &match{stage: Source, severity: Critical, remedy: "look at the board's console and log: something ends its program, or resets it, again and again",
			text: fmt.Sprintf("board %s %s %d times within a minute", e.key.board, what, e.board.StartsLately)}
	case lately && e.key.stream != "" && (e.live == nil || e.hosts != nil && !e.same):
		return &match{stage: Source, text: fmt.Sprintf("board %s %s %s ago; its sessions are void, and the stream is being opened again", e.key.board, what, span(ago))}
	}
	return nil
}

func boardBack(e *evidence) *match {
	ago, fabric, lately := e.restarted(backFor)
	if !lately || !e.runs() {
		return nil
	}
	what := "restarted"
	if fabric {
		what = "set its fabric up again"
	}
	return &match{text: fmt.Sprintf("board %s %s %s ago; the stream runs again, in a new session", e.key.board, what, span(ago))}
}

func fabricMissing(e *evidence) *match {
	if e.board == nil || e.board.Last().Fabric.Present {
		return nil
	}
	text := "the fabric is missing or incompatible"
	if p := e.board.Last().Fabric.Problem; p != "" {
		text += ": " + brief(p)
	}
	return &match{stage: Posted, text: text}
}

func deviceDown(e *evidence) *match {
	if e.host == nil || e.host.Last().Device.Active {
		return nil
	}
	d := e.host.Last().Device
	text := fmt.Sprintf("the RDMA device %s of host %s is down", brief(d.Name), e.key.host)
	if d.Problem != "" {
		text += ": " + brief(d.Problem)
	}
	return &match{stage: NICIn, text: text}
}

func streamFailed(e *evidence) *match {
	if e.hosts == nil || e.hosts.State != "failed" {
		return nil
	}
	return &match{stage: Source, text: "the host gave the stream up: " + brief(e.hosts.Problem)}
}

// failure is what ended the queue pair, in the board's words: of the session
// that is open, or of the one before while the host tries again in vain.
func (e *evidence) failure() (text string, of *rocelink.StreamStatus) {
	if e.live != nil {
		if e.live.State == rocelink.StreamError {
			return e.live.Problem, e.live
		}
		if e.live.PacketsAcked > 0 {
			return "", nil
		}
	}
	if e.past != nil && strings.HasPrefix(e.past.Problem, "queue pair in error") {
		return e.past.Problem, e.past
	}
	if e.live == nil && e.hosts != nil && e.hosts.State != "ended" && strings.Contains(e.hosts.Problem, "queue pair in error") {
		return e.hosts.Problem, e.past
	}
	return "", nil
}

func (e *evidence) failed(cause string) (string, *rocelink.StreamStatus, bool) {
	text, of := e.failure()
	return text, of, strings.Contains(text, "("+cause+")")
}

func queuePairError(cause string) func(*evidence) *match {
	return func(e *evidence) *match {
		text, of, is := e.failed(cause)
		if !is {
			return nil
		}
		if of != nil && of.FatalNAKs > 0 {
			text = fmt.Sprintf("%s; %d fatal NAK", brief(text), of.FatalNAKs)
		}
		return &match{stage: Acknowledged, text: brief(text)}
	}
}

func noReceive(e *evidence) *match {
	if _, of, is := e.failed("RNRRetryExceeded"); is {
		text := "no receive posted: the host answered receiver not ready until the board gave up"
		if of != nil && of.RNRNAKs > 0 {
			text += fmt.Sprintf(", after %d such NAKs", of.RNRNAKs)
		}
		return &match{stage: Completions, text: text + e.holds()}
	}
	s := e.live
	if s == nil || s.RNRMessages+s.RNRNAKs == 0 {
		return nil
	}
	switch waits := e.moved(rnrNAKs) > 0 || e.onBoard == nil; {
	case s.FramesDone == 0 && waits:
		return &match{stage: Completions, text: fmt.Sprintf("no receive posted: %d times the host answered receiver not ready, and nothing was delivered%s", s.RNRNAKs, e.holds())}
	case e.onBoard != nil && e.moved(rnrNAKs) > 0 && e.moved(framesDone) == 0:
		return &match{stage: Completions, text: fmt.Sprintf("no receive posted any more: nothing was delivered for %.1f s, and the host answered receiver not ready %d times%s", e.seconds(), e.moved(rnrNAKs), e.holds())}
	}
	return nil
}

// holds tells who has the slots.
func (e *evidence) holds() string {
	held, slots, known := e.held()
	if !known {
		return ""
	}
	return fmt.Sprintf("; consumer holds %d of %d slots", held, slots)
}

// unanswered: packets are under way, and none was acknowledged meanwhile.
func (e *evidence) unanswered() bool {
	s := e.live
	if s == nil || s.State != rocelink.StreamRunning && s.State != rocelink.StreamStopping {
		return false
	}
	under, _ := e.outstanding()
	if under == 0 {
		return false
	}
	if e.onBoard == nil {
		return s.PacketsAcked == 0 && s.Timeouts+s.PacketsResent+s.SequenceNAKs > 0
	}
	return e.moved(packetsAcked) == 0 && (e.seconds() >= wanted.Seconds() || e.moved(timeouts) > 0)
}

func nothingArrives(e *evidence) *match {
	if !e.unanswered() {
		return nil
	}
	sent, seconds := e.unseen()
	if sent == 0 {
		return nil
	}
	if out, counted := e.macMoved(); counted && out == 0 {
		return nil // they do not even leave the board
	}
	return &match{stage: NICIn, text: fmt.Sprintf("the board sent %d packets, and the host's device received nothing for %.1f s", sent, seconds)}
}

func wrongPSN(e *evidence) *match {
	const suspect = "board sends, nothing acknowledged: host queue pair not ready or PSN differs"
	if _, of, is := e.failed("RetryExceeded"); is && (of == nil || of.PacketsAcked == 0) {
		text := suspect
		if of != nil {
			text += e.pointers(of)
		}
		return &match{stage: Acknowledged, text: text}
	}
	if e.unanswered() && e.live.PacketsAcked == 0 {
		return &match{stage: Acknowledged, text: suspect + e.pointers(e.live)}
	}
	// A PSN behind the expected one is a duplicate to the host: it acknowledges
	// it and takes nothing.
	if n, _, compared := e.notTaken(); compared && n > 0 && e.hosts.Total.Messages+e.hosts.Total.Errors == 0 {
		text := fmt.Sprintf("the host acknowledged %d frames and took none: it takes them for duplicates, PSN differs", n)
		return &match{stage: Completions, text: text}
	}
	return nil
}

// pointers adds what the counters say beyond the suspicion.
func (e *evidence) pointers(s *rocelink.StreamStatus) string {
	text := fmt.Sprintf(" (%d sent, %d timeouts", s.PacketsSent, s.Timeouts)
	switch {
	case e.deviceMoved("rx_qp_not_ready", "rx_unknown_qp") > 0:
		text += ", and the host's device drops packets for a queue pair that is not ready"
	case s.SequenceNAKs > 0:
		text += fmt.Sprintf(", %d NAK PSN sequence error: the host expects another PSN", s.SequenceNAKs)
	}
	return text + ")"
}

func peerSilent(e *evidence) *match {
	if _, of, is := e.failed("RetryExceeded"); is {
		return &match{stage: Acknowledged, text: fmt.Sprintf("the host fell silent: after %d packets none was acknowledged any more, and the board gave up after %d timeouts", of.PacketsAcked, of.Timeouts)}
	}
	if !e.unanswered() || e.live.PacketsAcked == 0 || e.moved(timeouts) == 0 {
		return nil
	}
	under, _ := e.outstanding()
	return &match{stage: Acknowledged, text: fmt.Sprintf("the host fell silent: nothing acknowledged for %.1f s, %d packets under way, %d timeouts", e.seconds(), under, e.moved(timeouts))}
}

func fabricError(e *evidence) *match {
	if text, _ := e.failure(); text != "" {
		return &match{stage: Sent, text: brief(text)}
	}
	return nil
}

func sessionMismatch(e *evidence) *match {
	if e.board == nil || e.host == nil || len(e.board.Heard) < 2 || len(e.host.Heard) < 2 {
		return nil // a stream that is being opened looks the same for a moment
	}
	before, hostBefore := e.board.Heard[1], e.host.Heard[1]
	switch {
	case e.live != nil && e.hosts != nil && e.live.Session != e.hosts.Session && e.hosts.Session != 0 &&
		session(before.Streams, e.live.Session) != nil && hostStream(hostBefore.Streams, e.key, e.hosts.Session) != nil:
		return &match{stage: Completions, text: fmt.Sprintf("sessions do not match: the board keeps %d, the host %d", e.live.Session, e.hosts.Session)}
	case e.live != nil && e.hosts == nil && session(before.Streams, e.live.Session) != nil && !listed(hostBefore.Streams, e.key):
		return &match{stage: Completions, text: fmt.Sprintf("sessions do not match: the board keeps %d, and host %s knows no such stream", e.live.Session, e.key.host)}
	case e.live == nil && e.hosts != nil && e.hosts.State == "running" && (e.past == nil || e.past.Session != e.hosts.Session) &&
		hostStream(hostBefore.Streams, e.key, e.hosts.Session) != nil && e.silentOn(before.Streams):
		return &match{stage: Source, text: fmt.Sprintf("sessions do not match: the host keeps %d, and board %s has no such session", e.hosts.Session, e.key.board)}
	}
	return nil
}

func listed(list []rocelink.HostStream, k key) bool {
	return slices.ContainsFunc(list, func(s rocelink.HostStream) bool { return s.Stream == k.stream && s.Board == k.board })
}

// silentOn reports that a board's list has no open session of the stream.
func (e *evidence) silentOn(list []rocelink.StreamStatus) bool {
	return !slices.ContainsFunc(list, func(s rocelink.StreamStatus) bool {
		return s.Host == e.key.host && s.Stream == e.key.stream && s.State != rocelink.StreamClosed
	})
}

func hostUnheard(e *evidence) *match {
	if e.live == nil || e.host != nil {
		return nil
	}
	return &match{stage: Completions, text: fmt.Sprintf("host %s was never heard, though the board keeps its stream", e.key.host)}
}

func streamClosed(e *evidence) *match {
	if e.live != nil || e.past == nil || e.past.Problem == "" || e.hosts != nil && (e.hosts.State == "ended" || e.hosts.Session != e.past.Session && e.hosts.Session != 0) {
		return nil
	}
	return &match{stage: Source, text: "the board closed the stream: " + brief(e.past.Problem)}
}

func streamWaiting(e *evidence) *match {
	if e.live != nil || e.hosts == nil || e.hosts.State != "waiting" && e.hosts.State != "opening" || e.hosts.Problem == "" {
		return nil
	}
	return &match{stage: Source, text: "the host waits to open the stream: " + brief(e.hosts.Problem)}
}

func macSilent(e *evidence) *match {
	out, counted := e.macMoved()
	sent := e.moved(packetsSent) + e.moved(packetsResent)
	if e.live == nil || !counted || out > 0 || sent == 0 || e.seconds() < wanted.Seconds() {
		return nil
	}
	if e.moved(packetsAcked) > 0 {
		return nil // what is acknowledged has left: the count was not taken anew
	}
	return &match{stage: MACOut, text: fmt.Sprintf("the fabric handed %d packets on in %.1f s, and the MAC sent none", sent, e.seconds())}
}

// lossKinds are the ways in which frames are lost for good, worst first.
func lossKinds(t rocelink.Totals) (text string, stage Name) {
	var parts []string
	for _, k := range []struct {
		n     rocelink.Count
		what  string
		stage Name
	}{
		{t.Errors, "completions with an error", Completions}, {t.Missing, "missing", Completions},
		{t.Overrun, "overwritten before they were looked at", Accepted}, {t.Corrupt, "with wrong content", Verified},
	} {
		if k.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", k.n, k.what))
			if stage == "" {
				stage = k.stage
			}
		}
	}
	return strings.Join(parts, ", "), stage
}

func framesLost(e *evidence) *match {
	if s := e.onBoard; s != nil && e.live != nil && e.moved(readBad) > 0 {
		return &match{stage: Verified, text: fmt.Sprintf("of %d frames the board read in %.1f s, %d were wrong", e.moved(framesDone), s.seconds, e.moved(readBad))}
	}
	h := e.onHost
	if h == nil || e.hosts == nil {
		return nil
	}
	old, now := h.old.Total, h.now.Total
	grown := rocelink.Totals{
		Missing: less(now.Missing, old.Missing), Overrun: less(now.Overrun, old.Overrun),
		Corrupt: less(now.Corrupt, old.Corrupt), Errors: less(now.Errors, old.Errors),
	}
	if grown.Lost() == 0 {
		return nil
	}
	if grown.Overrun == grown.Lost() {
		return nil // slow-consumer tells it better
	}
	text, stage := lossKinds(grown)
	if w := e.window; w != nil && grown.Errors > 0 {
		text += statuses(w.ByStatus)
	}
	return &match{stage: stage, text: fmt.Sprintf("frames are lost for good: in %.1f s %s", h.seconds, text)}
}

// statuses names the commonest errors of completions.
func statuses(by map[string]rocelink.Count) string {
	worst := ""
	for name, n := range by {
		if name != rocelink.StatusFlushed && (worst == "" || n > by[worst] || n == by[worst] && name < worst) {
			worst = name
		}
	}
	if worst == "" {
		return ""
	}
	return " (mostly " + brief(worst) + ")"
}

func rnrStorm(e *evidence) *match {
	waited, done := e.moved(rnrMessages), e.moved(framesDone)
	if e.live == nil || waited == 0 || float64(waited) < rnrShare*float64(done) {
		return nil
	}
	m := &match{stage: Completions, text: fmt.Sprintf("receiver not ready: %s of messages waited", share(waited, max(done, waited)))}
	held, slots, known := e.held()
	switch {
	case !known:
	case float64(held) >= heldShare*float64(slots):
		m.stage = Accepted
		m.text += e.holds()
		m.remedy = "make the consumer faster, give the stream more slots, or pace the source"
	default:
		m.text += fmt.Sprintf("; consumer holds only %d of %d slots: the receive loop posts too late", held, slots)
		m.remedy = "give the receive loop a core of its own (cpu), more slots, or a source that is paced"
	}
	return m
}

func slowConsumer(e *evidence) *match {
	if e.live == nil {
		return nil
	}
	if h := e.onHost; h != nil && e.hosts != nil && h.now.Total.Overrun > h.old.Total.Overrun {
		return &match{stage: Accepted, severity: Critical, text: fmt.Sprintf("slow consumer: %d frames in %.1f s were overwritten before it was done with them%s", h.now.Total.Overrun-h.old.Total.Overrun, h.seconds, e.holds())}
	}
	stalls, done := e.moved(creditStalls), e.moved(framesDone)
	held, slots, known := e.held()
	full := known && float64(held) >= heldShare*float64(slots)
	switch {
	case stalls > 0 && (float64(stalls) >= stallShare*float64(done) || full):
		return &match{stage: Accepted, text: fmt.Sprintf("slow consumer: the board waited %d times in %.1f s for a slot to be released%s", stalls, e.seconds(), e.holds())}
	case full && held == slots && slots > 1, full && e.onBoard != nil && done == 0 && e.live.SourceFrames > e.live.FramesDone:
		return &match{stage: Accepted, text: fmt.Sprintf("slow consumer: it holds %d of %d slots", held, slots)}
	}
	return nil
}

func completionsBehind(e *evidence) *match {
	n, late, compared := e.notTaken()
	if !compared || n == 0 || e.live == nil {
		return nil
	}
	stage := Completions
	if !completes(e.live.Verb) {
		stage = Accepted
	}
	return &match{stage: stage, text: fmt.Sprintf("%d frames that the host's device acknowledged were not taken by its receive loop %s later%s", n, span(late), e.holds())}
}

// lossOf tells of packets that were lost meanwhile.
func (e *evidence) lossOf() (again, sent, signs rocelink.Count) {
	again, sent = e.moved(packetsResent), e.moved(packetsSent)
	return again, sent, e.moved(sequenceNAKs) + e.moved(timeouts)
}

func loss(e *evidence) *match {
	again, sent, signs := e.lossOf()
	if e.live == nil || again == 0 || signs == 0 || float64(again) < lossShare*float64(sent+again) {
		return nil
	}
	text := fmt.Sprintf("packets are lost on the way: in %.1f s %d sequence NAKs and %d timeouts, %s of what was sent was sent again",
		e.seconds(), e.moved(sequenceNAKs), e.moved(timeouts), share(again, sent+again))
	return &match{stage: Resent, text: text + e.damage()}
}

// damage says where damaged packets were seen.
func (e *evidence) damage() string {
	var parts []string
	if n := e.deviceMoved("rx_icrc_error", "rx_icrc_encapsulated"); n > 0 {
		parts = append(parts, fmt.Sprintf("the host dropped %d with a wrong ICRC", n))
	}
	if n := e.portMoved(func(b *rocelink.BoardStatus) rocelink.Count { return b.Fabric.Counters["rx_bad_icrc"] }); n > 0 {
		parts = append(parts, fmt.Sprintf("the board dropped %d with a wrong ICRC", n))
	}
	if n := e.portMoved(func(b *rocelink.BoardStatus) rocelink.Count { return b.Link.Counters["rx_bad_fcs"] }); n > 0 {
		parts = append(parts, fmt.Sprintf("the board's MAC saw %d with a wrong FCS", n))
	}
	if n := e.portMoved(func(b *rocelink.BoardStatus) rocelink.Count { return b.Link.Counters["rsfec_uncorrected"] }); n > 0 {
		parts = append(parts, fmt.Sprintf("FEC could not correct %d codewords", n))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}

func sourceDropping(e *evidence) *match {
	n := e.moved(sourceDropped)
	if e.live == nil || n == 0 {
		return nil
	}
	return &match{stage: Source, text: fmt.Sprintf("the source made more than the stream could take: %d frames in %.1f s were dropped before it", n, e.seconds())}
}

// stalled is the last resort: frames are under way and none gets through.
func stalled(e *evidence) *match {
	s := e.live
	if s == nil || e.onBoard == nil || s.State != rocelink.StreamRunning && s.State != rocelink.StreamStopping ||
		e.seconds() < wanted.Seconds() || e.moved(framesDone) > 0 {
		return nil
	}
	under, frames := e.outstanding()
	if frames == 0 {
		return nil
	}
	stage := Posted
	switch {
	case under > 0:
		stage = Acknowledged
	case s.FramesPosted > s.FramesDone:
		stage = Sent
	}
	if e.moved(packetsAcked) > 0 {
		return nil // a long frame is on its way
	}
	return &match{stage: stage, text: fmt.Sprintf("%d frames are under way and none was delivered for %.1f s", frames, e.seconds())}
}

func sourceIdle(e *evidence) *match {
	s := e.live
	if s == nil || s.State != rocelink.StreamRunning || s.Ended || e.idle == 0 {
		return nil
	}
	if _, frames := e.outstanding(); frames > 0 {
		return nil
	}
	if s.SourceFrames == 0 {
		return &match{stage: Source, text: fmt.Sprintf("source idle: no frame since the stream began, for at least %s", span(e.idle))}
	}
	return &match{stage: Source, text: fmt.Sprintf("source idle: no frame for at least %s; all %d before were delivered", span(e.idle), s.FramesDone)}
}

func lostEarlier(e *evidence) *match {
	switch {
	case e.at != nil && e.at.ReadBad > 0:
		return &match{stage: Verified, text: fmt.Sprintf("%d frames the board read earlier in this session were wrong", e.at.ReadBad)}
	case e.hosts != nil && e.hosts.Total.Lost() > 0:
		text, stage := lossKinds(e.hosts.Total)
		return &match{stage: stage, text: "frames were lost earlier in this session: " + text}
	case e.at != nil && e.at.SourceDropped > 0:
		return &match{stage: Source, text: fmt.Sprintf("%d frames were dropped at the source earlier in this session", e.at.SourceDropped)}
	case e.hosts != nil && e.hosts.State == "ended" && e.hosts.Problem != "":
		return &match{text: "the stream has ended, and not in order: " + brief(e.hosts.Problem)}
	}
	return nil
}

func streamEnded(e *evidence) *match {
	switch {
	case e.live != nil && e.live.State == rocelink.StreamStopped:
		return &match{text: fmt.Sprintf("the stream has stopped: all %d frames were delivered", e.live.FramesDone)}
	case e.live != nil && e.live.State == rocelink.StreamStopping:
		return &match{text: "the stream is stopping: what was taken is being delivered"}
	case e.live != nil && e.live.Ended:
		return &match{text: fmt.Sprintf("the source ended after %d frames", e.live.SourceFrames)}
	case e.live == nil && e.hosts != nil && e.hosts.State == "ended", e.live == nil && e.hosts == nil && e.past != nil:
		return &match{text: "the stream has ended"}
	}
	return nil
}

func streamOpen(e *evidence) *match {
	if e.key.stream == "" || e.live != nil && e.live.State != rocelink.StreamOpen && (e.same || e.hosts == nil) {
		return nil
	}
	return &match{text: "the stream is being opened"}
}

func noStream(e *evidence) *match {
	switch {
	case e.key.stream != "":
		return nil
	case e.key.board != "":
		return &match{text: fmt.Sprintf("board %s is in order and has no stream", e.key.board)}
	}
	return &match{text: fmt.Sprintf("host %s is in order and has no stream", e.key.host)}
}

func measuring(e *evidence) *match {
	if e.onBoard != nil && (e.onHost != nil || e.verb() == rocelink.VerbRead) {
		return nil
	}
	return &match{text: "nothing is wrong by what was heard so far; rates need a second record"}
}

func resentFew(e *evidence) *match {
	again, sent, signs := e.lossOf()
	if again == 0 || signs == 0 {
		return nil
	}
	return &match{text: fmt.Sprintf("%s of packets was sent again; nothing is lost", share(again, sent+again))}
}

func healthy(e *evidence) *match {
	text := "every stage keeps up"
	if n := e.hosts; n != nil && n.Total.Late+n.Total.Duplicate > 0 {
		text += fmt.Sprintf("; %d frames came late, %d twice", n.Total.Late, n.Total.Duplicate)
	}
	return &match{text: text}
}

func framesDone(s *rocelink.StreamStatus) rocelink.Count    { return s.FramesDone }
func packetsSent(s *rocelink.StreamStatus) rocelink.Count   { return s.PacketsSent }
func packetsResent(s *rocelink.StreamStatus) rocelink.Count { return s.PacketsResent }
func packetsAcked(s *rocelink.StreamStatus) rocelink.Count  { return s.PacketsAcked }
func timeouts(s *rocelink.StreamStatus) rocelink.Count      { return s.Timeouts }
func sequenceNAKs(s *rocelink.StreamStatus) rocelink.Count  { return s.SequenceNAKs }
func rnrNAKs(s *rocelink.StreamStatus) rocelink.Count       { return s.RNRNAKs }
func rnrMessages(s *rocelink.StreamStatus) rocelink.Count   { return s.RNRMessages }
func readBad(s *rocelink.StreamStatus) rocelink.Count       { return s.ReadBad }
func creditStalls(s *rocelink.StreamStatus) rocelink.Count  { return s.CreditStalls }
func sourceDropped(s *rocelink.StreamStatus) rocelink.Count { return s.SourceDropped }
