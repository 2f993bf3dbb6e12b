package path

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/heard"
)

// world plays a board and a host that publish once a second, half a second
// apart, into a store. Nothing of it agrees with the clock of the store.
type world struct {
	t     *testing.T
	now   time.Time // of the store
	store *heard.Store

	board  rocelink.BoardStatus
	host   rocelink.HostStatus
	window rocelink.Window
	verb   rocelink.Verb

	// silent ones do not publish.
	boardSilent, hostSilent bool
	// change is applied after each second of healthy traffic.
	change func(w *world)
	second int
}

const (
	perSecond = 1000 // frames
	perFrame  = 16   // packets
	frameSize = 65536
)

func newWorld(t *testing.T, verb rocelink.Verb) *world {
	w := &world{t: t, now: time.Unix(1_700_000_000, 0), verb: verb}
	w.store = heard.New(heard.Config{Now: func() time.Time { return w.now }})
	boardClock := w.now.Add(-31 * time.Hour) // a board without a real-time clock
	w.board = rocelink.BoardStatus{
		Version: 1, Board: "demo", Epoch: 11, Time: boardClock, UptimeMS: 100_000, Model: "demo",
		Fabric: rocelink.Fabric{Present: true, Version: "1.0", Counters: map[string]rocelink.Count{"tx_packets": 0, "rx_bad_icrc": 0}},
		Link: rocelink.Link{Driver: "cmac", State: "up", Up: true, Since: boardClock.Add(-90 * time.Second), Status: "0x3",
			Counters: map[string]rocelink.Count{"tx_packets": 0, "rsfec_corrected": 0, "rsfec_uncorrected": 0, "rx_bad_fcs": 0}},
		Streams: []rocelink.StreamStatus{{Stream: "s", Host: "h", Session: 77, Verb: verb, State: rocelink.StreamRunning, QPState: "Ready"}},
	}
	w.host = rocelink.HostStatus{
		Version: 1, Host: "h", Epoch: 22, Time: w.now.Add(5 * time.Hour), UptimeMS: 200_000,
		Device:  rocelink.Device{Provider: "soft", Name: "x", Active: true, Counters: map[string]rocelink.Count{"rx_packets": 0}},
		Streams: []rocelink.HostStream{{Stream: "s", Board: "demo", Session: 77, Verb: verb, State: "running", Opens: 1}},
	}
	w.window = rocelink.Window{Version: 1, Host: "h", Board: "demo", Stream: "s", Session: 77, Verb: verb, HeldSlots: 3, Slots: 512}
	return w
}

func (w *world) s() *rocelink.StreamStatus { return &w.board.Streams[0] }
func (w *world) h() *rocelink.HostStream   { return &w.host.Streams[0] }

// flow adds frames that take the whole way.
func (w *world) flow(frames, packets rocelink.Count) {
	if len(w.board.Streams) > 0 {
		s := w.s()
		s.SourceFrames += frames
		s.SourceBytes += frames * frameSize
		s.FramesPosted += frames
		s.FramesDone += frames
		s.BytesDone += frames * frameSize
		s.PacketsSent += packets
		s.PacketsAcked += packets
		if w.verb == rocelink.VerbRead {
			s.ReadGood += frames
		}
	}
	w.board.Link.Counters["tx_packets"] += packets
	w.host.Device.Counters["rx_packets"] += packets
	if w.verb != rocelink.VerbRead && len(w.host.Streams) > 0 {
		w.arrive(frames)
	}
}

func (w *world) arrive(frames rocelink.Count) {
	t := &w.h().Total
	t.Messages += frames
	t.Bytes += frames * frameSize
	t.Accepted += frames
	t.Verified += frames
}

func (w *world) publish(subject string, record any) {
	w.t.Helper()
	data, err := json.Marshal(record)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.Take(subject, data); err != nil {
		w.t.Fatal(err)
	}
}

// run lets seconds pass. The board samples and publishes at the full second,
// the host at the half.
func (w *world) run(seconds int) {
	for range seconds {
		w.second++
		w.flow(perSecond/2, perSecond/2*perFrame)
		if w.change != nil {
			w.change(w)
		}
		w.tick(500 * time.Millisecond)
		w.board.Sequence++
		w.board.SampledMS = w.board.UptimeMS - 40
		if !w.boardSilent {
			w.publish(rocelink.BoardStatusSubject(w.board.Board), w.board)
		}
		w.flow(perSecond/2, perSecond/2*perFrame)
		if w.change != nil {
			w.change(w)
		}
		w.tick(500 * time.Millisecond)
		w.host.Sequence++
		if !w.hostSilent {
			w.publish(rocelink.HostStatusSubject(w.host.Host), w.host)
			w.window.Number++
			w.publish(rocelink.WindowSubject(w.host.Host, "s"), w.window)
		}
	}
}

func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	w.board.UptimeMS += d.Milliseconds()
	w.board.Time = w.board.Time.Add(d)
	w.host.UptimeMS += d.Milliseconds()
	w.host.Time = w.host.Time.Add(d)
}

// path analyses what is known of the only stream.
func (w *world) path() Path {
	w.t.Helper()
	list := Analyse(w.store.View())
	if len(list) != 1 {
		w.t.Fatalf("%d paths: %+v", len(list), list)
	}
	return list[0]
}

// halt undoes half a second of flow on its way, from a stage on.
func (w *world) halt(from Name) {
	const f, p = perSecond / 2, perSecond / 2 * perFrame
	n := slices.Index(Names, from)
	before := func(x Name) bool { return slices.Index(Names, x) < n }
	if len(w.board.Streams) > 0 {
		s := w.s()
		if !before(Source) {
			s.SourceFrames, s.SourceBytes = s.SourceFrames-f, s.SourceBytes-f*frameSize
		}
		if !before(Posted) {
			s.FramesPosted -= f
		}
		if !before(Sent) {
			s.PacketsSent -= p
		}
		if !before(Acknowledged) {
			s.PacketsAcked, s.FramesDone, s.BytesDone = s.PacketsAcked-p, s.FramesDone-f, s.BytesDone-f*frameSize
			if w.verb == rocelink.VerbRead {
				s.ReadGood -= f
			}
		}
	}
	if n <= slices.Index(Names, Sent) {
		w.board.Link.Counters["tx_packets"] -= p
		w.host.Device.Counters["rx_packets"] -= p
	}
	if w.verb != rocelink.VerbRead && len(w.host.Streams) > 0 {
		t := &w.h().Total
		if n <= slices.Index(Names, Completions) {
			t.Messages, t.Bytes = t.Messages-f, t.Bytes-f*frameSize
		}
		if n <= slices.Index(Names, Accepted) {
			t.Accepted -= f
		}
		if n <= slices.Index(Names, Verified) {
			t.Verified -= f
		}
	}
}

func TestHealthy(t *testing.T) {
	for _, verb := range rocelink.Verbs {
		t.Run(string(verb), func(t *testing.T) {
			w := newWorld(t, verb)
			w.run(1)
			if p := w.path(); p.Diagnosis.Rule != "measuring" || !p.InOrder() {
				t.Errorf("one record: %+v", p.Diagnosis)
			}
			for range 20 {
				w.run(1)
				p := w.path()
				if p.Diagnosis.Rule != "healthy" || p.Broken != "" || !p.InOrder() {
					t.Fatalf("second %d: %+v, broken %q", w.second, p.Diagnosis, p.Broken)
				}
				if p.BitsPerSecond == nil || *p.BitsPerSecond < 0.99*perSecond*frameSize*8 || *p.BitsPerSecond > 1.01*perSecond*frameSize*8 {
					t.Errorf("goodput %v", p.BitsPerSecond)
				}
			}
			absent := map[Name]bool{}
			for _, s := range w.path().Stages {
				absent[s.Name] = s.State == Absent
				if s.State != OK && s.State != Absent {
					t.Errorf("%s is %s", s.Name, s.State)
				}
				if s.State == OK && (s.Rate == nil || s.AgeMS < 0 || s.AgeMS > 1000) {
					t.Errorf("%s: rate %v, %d ms old", s.Name, s.Rate, s.AgeMS)
				}
				if s.State == OK && s.Name != Resent {
					want := float64(perSecond)
					if s.Unit == packets {
						want *= perFrame
					}
					if *s.Rate < 0.99*want || *s.Rate > 1.01*want {
						t.Errorf("%s: %g per second, want %g", s.Name, *s.Rate, want)
					}
				}
			}
			if absent[Completions] != (verb == rocelink.VerbWrite || verb == rocelink.VerbRead) || absent[Accepted] != (verb == rocelink.VerbRead) {
				t.Errorf("absent: %v", absent)
			}
		})
	}
}

// The faults, provoked after ten healthy seconds.
func TestFaults(t *testing.T) {
	down := func(cause string, lane int, text string) func(*world) {
		return func(w *world) {
			w.halt(Acknowledged)
			if l := &w.board.Link; l.Up {
				l.Up, l.State, l.Since, l.Losses = false, "align", w.board.Time, 1
				l.Cause, l.Lane, l.Problem = cause, lane, text
			}
			w.board.Link.Counters["tx_packets"] -= perSecond / 2 * perFrame
		}
	}
	queuePair := func(cause string, acked bool, fatal rocelink.Count) func(*world) {
		return func(w *world) {
			w.halt(Source)
			s := w.s()
			if !acked {
				s.PacketsAcked, s.FramesDone, s.BytesDone = 0, 0, 0
				w.h().Total = rocelink.Totals{}
			}
			s.State, s.QPState, s.FatalNAKs, s.Timeouts = rocelink.StreamError, "Error", fatal, 8
			s.Problem = "queue pair in error: in words (" + cause + ")"
		}
	}
	fresh := func(w *world) { // nothing was ever acknowledged
		w.halt(Acknowledged)
		s := w.s()
		s.PacketsAcked, s.FramesDone, s.BytesDone, s.ReadGood = 0, 0, 0, 0
		s.SourceFrames, s.FramesPosted, s.PacketsSent = 16, 16, 256
		s.PacketsResent += 256
		s.Timeouts += 4
		w.h().Total = rocelink.Totals{}
	}
	for _, tc := range []struct {
		name     string
		verb     rocelink.Verb
		seconds  int
		change   func(*world)
		rule     string
		severity Severity
		stage    Name
		text     string
	}{
		{name: "no receive posted", change: func(w *world) {
			fresh(w)
			w.s().Timeouts = 0
			w.s().RNRNAKs += 700
			w.s().RNRMessages = 1
		}, rule: "no-receive", severity: Critical, stage: Completions, text: "no receive posted"},
		{name: "no receive posted any more", change: func(w *world) {
			w.halt(Acknowledged)
			w.s().RNRNAKs += 700
			w.window.HeldSlots = 512
		}, rule: "no-receive", severity: Critical, stage: Completions, text: "consumer holds 512 of 512 slots"},
		{name: "no receive until the board gave up", change: queuePair("RNRRetryExceeded", true, 0),
			rule: "no-receive", severity: Critical, stage: Completions, text: "receiver not ready"},
		{name: "wrong PSN", change: fresh, rule: "wrong-psn", severity: Critical, stage: Acknowledged,
			text: "board sends, nothing acknowledged: host queue pair not ready or PSN differs"},
		{name: "wrong PSN, the host says so", change: func(w *world) {
			fresh(w)
			w.s().SequenceNAKs += 3
		}, rule: "wrong-psn", severity: Critical, stage: Acknowledged, text: "the host expects another PSN"},
		{name: "host queue pair not ready", change: func(w *world) {
			fresh(w)
			w.host.Device.Counters["rx_qp_not_ready"] += 10
		}, rule: "wrong-psn", severity: Critical, stage: Acknowledged, text: "a queue pair that is not ready"},
		{name: "wrong PSN, taken for duplicates", change: func(w *world) {
			w.halt(Completions)
			w.h().Total = rocelink.Totals{}
		}, rule: "wrong-psn", severity: Critical, stage: Completions, text: "takes them for duplicates"},
		{name: "never acknowledged, given up", change: queuePair("RetryExceeded", false, 0),
			rule: "wrong-psn", severity: Critical, stage: Acknowledged, text: "nothing acknowledged"},
		{name: "wrong rkey", verb: rocelink.VerbWrite, change: queuePair("RemoteAccess", true, 1),
			rule: "wrong-rkey", severity: Critical, stage: Acknowledged, text: "1 fatal NAK"},
		{name: "wrong rkey, tried again and again", verb: rocelink.VerbWriteImm, change: func(w *world) {
			queuePair("RemoteAccess", false, 1)(w)
			w.s().State = rocelink.StreamClosed
			w.h().State, w.h().Session, w.h().Problem = "waiting", 0, "board's stream: "+w.s().Problem
		}, rule: "wrong-rkey", severity: Critical, stage: Acknowledged, text: "RemoteAccess"},
		{name: "invalid request", change: queuePair("RemoteInvalidRequest", true, 1),
			rule: "invalid-request", severity: Critical, stage: Acknowledged},
		{name: "RNR storm", change: func(w *world) {
			w.s().RNRMessages += 155
			w.s().RNRNAKs += 200
			w.s().PacketsResent += 200
			w.window.HeldSlots = 508
		}, rule: "rnr-storm", severity: Warning, stage: Accepted,
			text: "receiver not ready: 31 % of messages waited; consumer holds 508 of 512 slots"},
		{name: "RNR storm, the loop is late", verb: rocelink.VerbWriteImm, change: func(w *world) {
			w.s().RNRMessages += 155
		}, rule: "rnr-storm", severity: Warning, stage: Completions, text: "consumer holds only 3 of 512 slots"},
		{name: "lane dark", change: down(rocelink.CauseNoLight, 3, "qsfp0 receives no light on lane 3"),
			rule: "lane-dark", severity: Critical, stage: MACOut, text: "lane 3 dark since "},
		{name: "FEC mismatch", change: down(rocelink.CauseFECMismatch, 0, "FEC differs from the peer"),
			rule: "fec-mismatch", severity: Critical, stage: MACOut, text: "link down since "},
		{name: "no module", change: down(rocelink.CauseNoModule, 0, "cage qsfp0 is empty"), rule: "no-module", severity: Critical, stage: MACOut, text: "qsfp0 is empty"},
		{name: "module failed", change: down(rocelink.CauseModuleFailed, 0, ""), rule: "module-failed", severity: Critical, stage: MACOut},
		{name: "low power", change: down(rocelink.CauseLowPower, 0, ""), rule: "module-low-power", severity: Critical, stage: MACOut},
		{name: "transmitter off", change: down(rocelink.CauseTxDisabled, 2, ""), rule: "tx-disabled", severity: Critical, stage: MACOut},
		{name: "no clock", change: down(rocelink.CauseNoClock, 0, ""), rule: "no-clock", severity: Critical, stage: MACOut},
		{name: "wrong rate", change: down(rocelink.CauseWrongRate, 0, ""), rule: "wrong-lane-rate", severity: Critical, stage: MACOut},
		{name: "no signal", change: down(rocelink.CauseNoSignal, 0, ""), rule: "link-no-signal", severity: Critical, stage: MACOut},
		{name: "not aligned", change: down(rocelink.CauseNotAligned, 0, ""), rule: "link-not-aligned", severity: Critical, stage: MACOut},
		{name: "the peer does not see us", change: down(rocelink.CausePeerBlind, 0, ""), rule: "link-remote-fault", severity: Critical, stage: MACOut},
		{name: "bit errors", change: down(rocelink.CauseHighBER, 0, ""), rule: "link-high-ber", severity: Critical, stage: MACOut},
		{name: "no MAC", change: down(rocelink.CauseMACMissing, 0, ""), rule: "mac-missing", severity: Critical, stage: MACOut},
		{name: "a cause of a later release", change: down("gremlins", 0, "gremlins in the cage"), rule: "link-down", severity: Critical, stage: MACOut, text: "gremlins in the cage"},
		{name: "link down without a reason", change: down("", 0, ""), rule: "link-down", severity: Critical, stage: MACOut},
		{name: "link poor", change: func(w *world) {
			w.board.Link.Cause, w.board.Link.Problem = rocelink.CauseHighBER, "12 codewords a second were beyond correction"
		}, rule: "link-poor", severity: Warning, stage: MACOut, text: "beyond correction"},
		{name: "peer silent", change: func(w *world) {
			w.halt(Acknowledged)
			w.s().Timeouts += 2
			w.s().PacketsResent += 100
		}, rule: "peer-silent", severity: Critical, stage: Acknowledged, text: "the host fell silent"},
		{name: "peer silent, given up", change: queuePair("RetryExceeded", true, 0),
			rule: "peer-silent", severity: Critical, stage: Acknowledged, text: "the host fell silent"},
		{name: "nothing arrives", change: func(w *world) {
			w.halt(Acknowledged)
			w.host.Device.Counters["rx_packets"] -= perSecond / 2 * perFrame
			w.s().Timeouts += 2
		}, rule: "nothing-arrives", severity: Critical, stage: NICIn, text: "the host's device received nothing for"},
		{name: "loss on the wire", change: func(w *world) {
			w.s().PacketsResent += 800
			w.s().SequenceNAKs += 40
			w.s().Timeouts++
			w.host.Device.Counters["rx_icrc_error"] += 40
		}, rule: "loss", severity: Warning, stage: Resent, text: "9.1 % of what was sent was sent again; the host dropped"},
		{name: "one packet in millions", change: func(w *world) {
			w.s().PacketsResent++
			w.s().SequenceNAKs++
		}, rule: "resent", severity: Note},
		{name: "slow consumer, slots released late", verb: rocelink.VerbWrite, change: func(w *world) {
			w.s().CreditStalls += 400
			w.window.HeldSlots = 500
		}, rule: "slow-consumer", severity: Warning, stage: Accepted, text: "waited 800 times in 1.0 s for a slot to be released; consumer holds 500 of 512 slots"},
		{name: "slow consumer, slots overwritten", verb: rocelink.VerbWrite, change: func(w *world) {
			w.h().Total.Overrun += 50
			w.h().Total.Accepted -= 50
		}, rule: "slow-consumer", severity: Critical, stage: Accepted, text: "100 frames in 1.0 s were overwritten"},
		{name: "slow consumer, all slots held", change: func(w *world) {
			w.window.HeldSlots = 512
		}, rule: "slow-consumer", severity: Warning, stage: Accepted, text: "holds 512 of 512"},
		{name: "source idle", change: func(w *world) { w.halt(Source) },
			rule: "source-idle", severity: Warning, stage: Source, text: "source idle: no frame for at least"},
		{name: "source idle, READ", verb: rocelink.VerbRead, change: func(w *world) { w.halt(Source) },
			rule: "source-idle", severity: Warning, stage: Source},
		{name: "NATS down", change: func(w *world) {
			w.boardSilent, w.hostSilent = true, true
			w.store.SetConnected(false)
		}, rule: "nats-down", severity: Warning, text: "no connection to a NATS server since "},
		{name: "board silent", seconds: 7, change: func(w *world) { w.boardSilent = true },
			rule: "board-stale", severity: Critical, stage: Source, text: "board demo has not been heard since "},
		{name: "host silent", seconds: 7, change: func(w *world) { w.hostSilent = true },
			rule: "host-stale", severity: Critical, stage: Completions, text: "host h has not been heard since "},
		{name: "board restarted", change: func(w *world) {
			if w.board.Epoch == 11 {
				w.board.Epoch, w.board.UptimeMS, w.board.Streams = 12, 0, []rocelink.StreamStatus{}
				w.board.Link.Up, w.board.Link.Problem = false, "not started"
			}
			w.h().State, w.h().Session, w.h().Total, w.h().Problem = "waiting", 0, rocelink.Totals{}, "board lost the session"
		}, rule: "board-restarted", severity: Warning, stage: Source, text: "board demo restarted"},
		{name: "fabric set up again", change: func(w *world) {
			if w.board.Epoch == 11 {
				w.board.Epoch, w.board.Streams = 12, []rocelink.StreamStatus{}
			}
			w.h().State, w.h().Session, w.h().Total = "opening", 0, rocelink.Totals{}
		}, rule: "board-restarted", severity: Warning, stage: Source, text: "set its fabric up again"},
		{name: "board restarts every second", seconds: 6, change: func(w *world) {
			w.board.Epoch++
			w.board.UptimeMS, w.board.Streams = 300, []rocelink.StreamStatus{}
		}, rule: "board-restarted", severity: Critical, stage: Source, text: "times within a minute"},
		{name: "the stream runs again after a restart", seconds: 4, change: func(w *world) {
			if w.board.Epoch == 11 {
				w.board.Epoch, w.board.UptimeMS = 12, 0
				s := *w.s()
				w.board.Streams[0] = rocelink.StreamStatus{Stream: s.Stream, Host: s.Host, Verb: s.Verb, State: s.State, Session: 78}
				w.h().Session, w.h().Opens, w.h().Total, w.window.Session = 78, 2, rocelink.Totals{}, 78
			}
		}, rule: "board-back", severity: Note, text: "runs again"},
		{name: "sessions do not match", change: func(w *world) { w.h().Session = 99 },
			rule: "session-mismatch", severity: Critical, stage: Completions, text: "the board keeps 77, the host 99"},
		{name: "the host knows no such stream", change: func(w *world) { w.host.Streams = nil },
			rule: "session-mismatch", severity: Critical, stage: Completions, text: "knows no such stream"},
		{name: "the board has no such session", change: func(w *world) { w.board.Streams = nil },
			rule: "session-mismatch", severity: Critical, stage: Source, text: "no such session"},
		{name: "fabric missing", change: func(w *world) {
			w.board.Fabric = rocelink.Fabric{Problem: "identity register reads 0xFFFFFFFF"}
			w.board.Streams = nil
		}, rule: "fabric-missing", severity: Critical, stage: Posted, text: "0xFFFFFFFF"},
		{name: "device down", change: func(w *world) {
			w.halt(Acknowledged)
			w.host.Device.Active, w.host.Device.Problem = false, "port down"
		}, rule: "device-down", severity: Critical, stage: NICIn, text: "port down"},
		{name: "the receive loop stands", change: func(w *world) { w.halt(Completions) },
			rule: "completions-behind", severity: Critical, stage: Completions, text: "were not taken by its receive loop"},
		{name: "the ring is not looked at", verb: rocelink.VerbWrite, change: func(w *world) { w.halt(Completions) },
			rule: "completions-behind", severity: Critical, stage: Accepted},
		{name: "corrupt frames", change: func(w *world) {
			w.h().Total.Corrupt += 5
			w.h().Total.Verified -= 5
		}, rule: "frames-lost", severity: Critical, stage: Verified, text: "10 with wrong content"},
		{name: "completions in error", change: func(w *world) {
			w.h().Total.Errors += 5
			w.window.ByStatus = map[string]rocelink.Count{"flushed": 900, "local length error": 5}
		}, rule: "frames-lost", severity: Critical, stage: Completions, text: "local length error"},
		{name: "wrong READ data", verb: rocelink.VerbRead, change: func(w *world) {
			w.s().ReadBad += 5
			w.s().ReadGood -= 5
		}, rule: "frames-lost", severity: Critical, stage: Verified},
		{name: "lost earlier", change: func(w *world) { w.h().Total.Missing = 9 },
			seconds: 9, rule: "lost-earlier", severity: Warning, stage: Completions, text: "9 missing"},
		{name: "source drops", change: func(w *world) { w.s().SourceDropped += 70 },
			rule: "source-dropping", severity: Critical, stage: Source, text: "140 frames"},
		{name: "the MAC sends nothing", change: func(w *world) {
			w.halt(Acknowledged)
			w.board.Link.Counters["tx_packets"] -= perSecond / 2 * perFrame
			w.host.Device.Counters["rx_packets"] -= perSecond / 2 * perFrame
		}, rule: "mac-silent", severity: Critical, stage: MACOut},
		{name: "stalled in the fabric", change: func(w *world) {
			w.halt(Sent)
		}, rule: "stalled", severity: Critical, stage: Sent},
		{name: "lease lapsed", change: func(w *world) {
			w.s().State, w.s().Problem = rocelink.StreamClosed, "the lease of 5s lapsed"
			w.halt(Source)
		}, rule: "stream-closed", severity: Warning, stage: Source, text: "lease"},
		{name: "the board refuses", change: func(w *world) {
			w.board.Streams = nil
			w.h().State, w.h().Session, w.h().Problem, w.h().Total = "waiting", 0, "all 16 queue pairs are taken", rocelink.Totals{}
		}, rule: "stream-waiting", severity: Warning, stage: Source, text: "16 queue pairs"},
		{name: "given up", change: func(w *world) {
			w.board.Streams = nil
			w.h().State, w.h().Session, w.h().Problem, w.h().Total = "failed", 0, "verb is not supported", rocelink.Totals{}
		}, rule: "stream-failed", severity: Critical, stage: Source, text: "not supported"},
		{name: "ended in order", change: func(w *world) {
			w.halt(Source)
			w.s().State = rocelink.StreamClosed
			w.h().State, w.h().Session, w.h().Total = "ended", 0, rocelink.Totals{}
		}, rule: "stream-ended", severity: Note},
		{name: "stopped", change: func(w *world) {
			w.halt(Source)
			w.s().State, w.s().Ended = rocelink.StreamStopped, true
		}, rule: "stream-ended", severity: Note},
		{name: "being opened", change: func(w *world) {
			w.board.Streams = nil
			w.h().State, w.h().Session, w.h().Total = "opening", 0, rocelink.Totals{}
		}, rule: "stream-open", severity: Note},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.verb)
			if tc.verb == "" {
				w = newWorld(t, rocelink.VerbSend)
			}
			w.run(10)
			if p := w.path(); !p.InOrder() {
				t.Fatalf("before: %+v", p.Diagnosis)
			}
			w.change = tc.change
			if tc.seconds == 0 {
				tc.seconds = 3
			}
			w.run(tc.seconds)
			p := w.path()
			if d := p.Diagnosis; d.Rule != tc.rule || d.Severity != tc.severity || !strings.Contains(d.Text, tc.text) {
				t.Errorf("%s (%s): %s\nwant %s (%s): … %s …", d.Rule, d.Severity, d.Text, tc.rule, tc.severity, tc.text)
			}
			if p.Broken != tc.stage {
				t.Errorf("broken at %q, want %q", p.Broken, tc.stage)
			}
			if p.Diagnosis.Severity.Rank() > Note.Rank() && p.Diagnosis.Remedy == "" {
				t.Error("no remedy")
			}
			past := false
			for _, s := range p.Stages {
				if (s.State == Broken) != (s.Name == tc.stage) || past && s.State == OK && tc.severity == Critical || !past && s.State == After {
					t.Errorf("%s is %s", s.Name, s.State)
				}
				past = past || s.State == Broken
			}
			if testing.Verbose() {
				t.Logf("%s: %s", p.Diagnosis.Rule, p.Diagnosis.Text)
			}
		})
	}
}

// Records of two machines are never of one instant: whatever the rate and the
// phase between them, a stream that keeps up is called so.
func TestSkewIsNoLoss(t *testing.T) {
	for _, verb := range []rocelink.Verb{rocelink.VerbSend, rocelink.VerbWrite} {
		for phase := range 40 {
			w := newWorld(t, verb)
			step := 25 * time.Millisecond
			for i := range 400 {
				w.flow(2500, 2500*perFrame) // 100,000 frames a second
				w.tick(step)
				if i%40 == 0 {
					w.board.SampledMS = w.board.UptimeMS - 100
					w.publish(rocelink.BoardStatusSubject("demo"), w.board)
				}
				if i%40 == phase {
					w.publish(rocelink.HostStatusSubject("h"), w.host)
				}
				if i < 90 {
					continue
				}
				if p := w.path(); p.Diagnosis.Rule != "healthy" {
					t.Fatalf("%s, phase %v, step %d: %+v", verb, time.Duration(phase)*step, i, p.Diagnosis)
				}
			}
		}
	}
}

// The host is behind by exactly what it did not take, and by nothing when it
// cannot be told.
func TestCountsAreComparedInTheOrderOfTime(t *testing.T) {
	w := newWorld(t, rocelink.VerbSend)
	w.run(5)
	e := evidence{view: w.store.View(), key: key{"demo", "h", "s"}}
	set := func() *evidence {
		e = evidence{view: w.store.View(), key: key{"demo", "h", "s"}}
		e.board, e.host = &e.view.Boards[0], &e.view.Hosts[0]
		b, h := e.board.Last(), e.host.Last()
		e.live, e.hosts = &b.Streams[0], &h.Streams[0]
		e.collect()
		return &e
	}
	// The board's sample half a second before is too young; that before it counts.
	if n, late, ok := set().notTaken(); !ok || n != 0 || late != 1500*time.Millisecond {
		t.Errorf("%d, %v, %v", n, late, ok)
	}
	// Whatever the board says after the host's last record says nothing of it.
	w.hostSilent = true
	w.run(2)
	if n, late, ok := set().notTaken(); !ok || n != 0 || late != 1500*time.Millisecond {
		t.Errorf("host silent: %d, %v, %v", n, late, ok)
	}
	w.hostSilent = false
	w.h().Total.Messages -= 4 * perSecond
	w.run(1)
	// In the second and a half before the host's record 1500 frames came.
	if n, _, ok := set().notTaken(); !ok || n != 4*perSecond-3*perSecond/2 {
		t.Errorf("%d, %v", n, ok)
	}
}

func TestCountersThatGoBackAreNotBelieved(t *testing.T) {
	w := newWorld(t, rocelink.VerbSend)
	w.run(5)
	w.change = func(w *world) { w.s().FramesDone, w.h().Total.Bytes = 1, 1 }
	w.run(1)
	p := w.path()
	for _, s := range p.Stages {
		if s.Rate != nil && *s.Rate > 1e6 {
			t.Errorf("%s: %g per second", s.Name, *s.Rate)
		}
	}
	if p.BitsPerSecond != nil && *p.BitsPerSecond > 1e12 {
		t.Errorf("%g bits per second", *p.BitsPerSecond)
	}
}

func TestBoardsAndHostsWithoutStreams(t *testing.T) {
	w := newWorld(t, rocelink.VerbSend)
	w.board.Streams, w.host.Streams = nil, nil
	w.change = func(w *world) { w.board.Streams, w.host.Streams = nil, nil }
	w.run(3)
	list := Analyse(w.store.View())
	if len(list) != 2 || list[0].Host != "h" || list[1].Board != "demo" {
		t.Fatalf("%+v", list)
	}
	for _, p := range list {
		if p.Diagnosis.Rule != "no-stream" || len(p.Stages) != 0 {
			t.Errorf("%+v", p)
		}
	}
	w.board.Link.Up = false
	w.host.Device.Active = false
	w.run(1)
	list = Analyse(w.store.View())
	if list[0].Diagnosis.Rule != "device-down" || list[1].Diagnosis.Rule != "link-down" || InOrder(list) {
		t.Errorf("%+v", list)
	}
}

func TestTwoBoardsOfOneName(t *testing.T) {
	w := newWorld(t, rocelink.VerbSend)
	for i := range 12 {
		w.board.Epoch = rocelink.Count(1 + i%2)
		w.run(1)
	}
	if p := w.path(); p.Diagnosis.Rule != "name-twice" {
		t.Errorf("%+v", p.Diagnosis)
	}
}

func TestAHostAlone(t *testing.T) {
	w := newWorld(t, rocelink.VerbSend)
	w.boardSilent = true
	w.run(3)
	if p := w.path(); p.Diagnosis.Rule != "board-unheard" || p.Broken != Source || p.Link != nil {
		t.Errorf("%+v", p)
	}
	w = newWorld(t, rocelink.VerbSend)
	w.hostSilent = true
	w.run(3)
	if p := w.path(); p.Diagnosis.Rule != "host-unheard" || p.Broken != Completions {
		t.Errorf("%+v", p)
	}
}

func TestWhenTheLinkWentDown(t *testing.T) {
	for _, tc := range []struct {
		since func(rocelink.BoardStatus) time.Time
		known bool
	}{
		{func(b rocelink.BoardStatus) time.Time { return b.Time.Add(-time.Minute) }, true},
		{func(b rocelink.BoardStatus) time.Time { return b.Time.Add(time.Minute) }, false},
		{func(b rocelink.BoardStatus) time.Time { return b.Time.Add(-50 * 365 * 24 * time.Hour) }, false}, // the clock was set in between
		{func(rocelink.BoardStatus) time.Time { return time.Time{} }, false},
	} {
		w := newWorld(t, rocelink.VerbSend)
		w.change = func(w *world) { w.board.Link.Up, w.board.Link.Since = false, tc.since(w.board) }
		w.run(3)
		p := w.path()
		if (p.Link.ForMS != nil) != tc.known || strings.Contains(p.Diagnosis.Text, "since") != tc.known {
			t.Errorf("%v: %+v", p.Link, p.Diagnosis)
		}
	}
}

func TestTracker(t *testing.T) {
	var k Tracker
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	one := func(rule string, up bool) []Path {
		return []Path{{ID: "a", Diagnosis: Diagnosis{Rule: rule}, Link: &Link{Up: up}}}
	}
	k.Update(at(1), one("healthy", true))
	k.Update(at(2), one("link-down", false))
	b := k.Update(at(9), one("link-down", true))["a"]
	if !b.At.Equal(at(2)) || b.Link.Up {
		t.Errorf("%+v", b)
	}
	k.Update(at(10), nil)
	if b := k.Update(at(11), one("link-down", true))["a"]; !b.At.Equal(at(11)) {
		t.Errorf("%+v", b)
	}
}

func TestRulesHaveUniqueNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules {
		if seen[r.Name] || r.Name == "" || r.Severity.Rank() < 0 || strings.ToLower(r.Name) != r.Name {
			t.Errorf("rule %q", r.Name)
		}
		seen[r.Name] = true
		if r.Severity.Rank() > Note.Rank() && r.Remedy == "" {
			t.Errorf("rule %s has no remedy", r.Name)
		}
	}
	if r := Rules[len(Rules)-1]; r.Name != "healthy" || r.test(&evidence{}) == nil {
		t.Error("the last rule must always match")
	}
}

// FuzzAnalyse holds that no records, however hostile, break the analysis or
// lead to figures that cannot be.
func FuzzAnalyse(f *testing.F) {
	for seed := range 4 {
		f.Add(fmt.Sprintf(`{"version":1,"board":"b","epoch":"1","uptime_ms":%d,"sampled_ms":5,"link":{"since":"2026-01-01T00:00:00Z"},"streams":[{"stream":"s","host":"h","session":"1","verb":"send","state":"running","packets_sent":"18446744073709551615"}]}`, seed*1000),
			`{"version":1,"host":"h","uptime_ms":9223372036854775807,"streams":[{"stream":"s","board":"b","session":"1","state":"running","total":{"messages":"5"}}]}`, uint16(900))
	}
	f.Fuzz(func(t *testing.T, board, host string, gap uint16) {
		now := time.Unix(1_700_000_000, 0)
		s := heard.New(heard.Config{Now: func() time.Time { return now }})
		for range 3 {
			_ = s.Take(rocelink.BoardStatusSubject("b"), []byte(board))
			now = now.Add(time.Duration(gap) * time.Millisecond)
			_ = s.Take(rocelink.HostStatusSubject("h"), []byte(host))
			board = strings.Replace(board, `"sampled_ms":`, `"sampled_ms":1`, 1)
		}
		for _, p := range Analyse(s.View()) {
			if p.Diagnosis.Rule == "" || len(p.Diagnosis.Text) > 4000 {
				t.Errorf("%+v", p.Diagnosis)
			}
			for _, st := range p.Stages {
				if st.AgeMS < 0 || st.Rate != nil && *st.Rate < 0 {
					t.Errorf("%+v", st)
				}
			}
			if _, err := json.Marshal(p); err != nil {
				t.Error(err)
			}
		}
	})
}
