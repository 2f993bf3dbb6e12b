package stream

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"rocelink"
)

// Spec says what stream to open. The zero value of a field is its default.
type Spec struct {
	// Name of the stream, unique in this agent. Default: the verb.
	Name string `yaml:"name"`
	// Board that sends.
	Board string `yaml:"board"`
	// Verb, default send.
	Verb rocelink.Verb `yaml:"verb"`
	// FrameBytes is the largest frame. Default 65536.
	FrameBytes Size `yaml:"frame"`
	// Slots of the region; default as many as make 16 MiB, from 16 to 1024.
	Slots int `yaml:"slots"`
	// Source of the frames: counter, prbs31 (default) or external.
	Source string `yaml:"source"`
	// CRC: the last 4 bytes of a frame are the CRC-32 of those before.
	CRC bool `yaml:"crc"`
	// Rate limits the payload. Default: none.
	Rate Rate `yaml:"rate"`
	// Burst of frames before the rate applies.
	Burst int `yaml:"burst"`
	// Count of frames after which the generator ends. Default: none.
	Count uint64 `yaml:"count"`
	// Sink takes the frames: "verify" (default where the source is a pattern),
	// "discard" (default otherwise), or "file:PATH".
	Sink string `yaml:"sink"`
	// Mode is how the loop waits: "event" (default) or "busy".
	Mode string `yaml:"mode"`
	// Batch is how many completions one poll takes. Default 16.
	Batch int `yaml:"batch"`
	// MTU limits the path MTU. Default: what the port carries.
	MTU int `yaml:"mtu"`
	// CPU to pin the receive thread to, from 0. Default: none.
	CPU *int `yaml:"cpu"`
	// Lease is how long the board goes on when the agent is silent.
	Lease time.Duration `yaml:"lease"`
	// FreeRunning: a write stream does not wait for slots to be released and
	// overwrites them.
	FreeRunning bool `yaml:"free-running"`
	// RNRRetry, RetryCount and Timeout of the board's queue pair (IBTA codes).
	RNRRetry   *int `yaml:"rnr-retry"`
	RetryCount *int `yaml:"retry"`
	Timeout    *int `yaml:"timeout"`
	// Window is the most unacknowledged packets. Default: the board's choice.
	Window int `yaml:"window"`
	// Share names what send and send-imm streams receive with together: memory,
	// a queue of receives and a thread. Default: each has its own.
	Share string `yaml:"share"`

	common *shared // of the share; nil: none
}

// ErrSpec: a setting of a stream is wrong; the text names it.
var ErrSpec = errors.New("bad stream setting")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrSpec}, args...)...)
}

// ParseSpec reads "key=value,key=value" with the keys of the configuration
// file, as in "board=demo,verb=write,frame=64KiB,rate=1G".
func ParseSpec(text string) (Spec, error) {
	var s Spec
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return s, bad("%q: write key=value", part)
		}
		if seen[key] {
			return s, bad("%s is given twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "name":
			s.Name = value
		case "board":
			s.Board = value
		case "verb":
			s.Verb = rocelink.Verb(value)
		case "frame":
			err = s.FrameBytes.Set(value)
		case "slots":
			s.Slots, err = strconv.Atoi(value)
		case "source":
			s.Source = value
		case "crc":
			s.CRC, err = strconv.ParseBool(value)
		case "rate":
			err = s.Rate.Set(value)
		case "burst":
			s.Burst, err = strconv.Atoi(value)
		case "count":
			s.Count, err = strconv.ParseUint(value, 10, 64)
		case "sink":
			s.Sink = value
		case "mode":
			s.Mode = value
		case "batch":
			s.Batch, err = strconv.Atoi(value)
		case "mtu":
			s.MTU, err = strconv.Atoi(value)
		case "cpu":
			s.CPU, err = intPointer(value)
		case "lease":
			s.Lease, err = time.ParseDuration(value)
		case "free-running":
			s.FreeRunning, err = strconv.ParseBool(value)
		case "rnr-retry":
			s.RNRRetry, err = intPointer(value)
		case "retry":
			s.RetryCount, err = intPointer(value)
		case "timeout":
			s.Timeout, err = intPointer(value)
		case "window":
			s.Window, err = strconv.Atoi(value)
		case "share":
			s.Share = value
		default:
			return s, bad("no setting is called %q", key)
		}
		if err != nil {
			return s, bad("%s=%s: %v", key, value, err)
		}
	}
	return s, nil
}

func intPointer(s string) (*int, error) {
	v, err := strconv.Atoi(s)
	return &v, err
}

// How a loop waits.
const (
	modeEvent = "event"
	modeBusy  = "busy"
)

// Sinks besides "file:PATH".
const (
	SinkVerify  = "verify"
	SinkDiscard = "discard"
	sinkFile    = "file:"
)

// Bounds of a region.
const (
	maxSlots       = 1 << 16
	defaultRegion  = 16 << 20
	minDefault     = 16
	maxDefault     = 1024
	receiveCeiling = 16384 // receives of one queue pair that every RDMA NIC has
)

// Complete fills in defaults and checks every setting.
func (s Spec) Complete() (Spec, error) {
	if s.Verb == "" {
		s.Verb = rocelink.VerbSend
	}
	if !s.Verb.Valid() {
		return s, bad("verb %q: give one of %v", s.Verb, rocelink.Verbs)
	}
	if s.Name == "" {
		s.Name = string(s.Verb)
	}
	if err := rocelink.CheckName("stream", s.Name); err != nil {
		return s, bad("%v", err)
	}
	if err := rocelink.CheckName("board", s.Board); err != nil {
		return s, bad("%v", err)
	}
	if s.FrameBytes.given = s.FrameBytes.given || s.FrameBytes.Bytes != 0; !s.FrameBytes.given {
		s.FrameBytes.Bytes = 65536
	}
	if s.FrameBytes.Bytes > rocelink.MaxFrameBytes {
		return s, bad("frame of %d bytes: at most %d", s.FrameBytes.Bytes, rocelink.MaxFrameBytes)
	}
	asked := s.Slots != 0
	if !asked {
		s.Slots = defaultSlots(s.stride())
	}
	if s.Slots < 2 || s.Slots > maxSlots {
		return s, bad("slots %d: give 2 to %d", s.Slots, maxSlots)
	}
	if s.Verb != rocelink.VerbWrite && s.Verb != rocelink.VerbRead && s.Slots > receiveCeiling {
		return s, bad("slots %d: a queue pair holds at most %d receives", s.Slots, receiveCeiling)
	}
	if err := checkRegion(s.Slots, s.stride()); err != nil {
		return s, bad("%v", err)
	}
	switch s.Source {
	case "":
		s.Source = rocelink.SourcePRBS31
	case rocelink.SourceCounter, rocelink.SourcePRBS31, rocelink.SourceExternal:
	default:
		return s, bad("source %q: give counter, prbs31 or external", s.Source)
	}
	if s.Verb == rocelink.VerbRead && s.Source == rocelink.SourceExternal {
		return s, bad("source external: a read stream reads a pattern, counter or prbs31")
	}
	if s.Source == rocelink.SourceExternal && s.FrameBytes.Bytes == 0 {
		return s, bad("frame of 0 bytes: an external source needs frames")
	}
	if s.Source == rocelink.SourceExternal && (s.CRC || s.Count > 0) {
		return s, bad("crc and count belong to the generator, not to an external source")
	}
	if s.CRC && s.FrameBytes.Bytes < 4 {
		return s, bad("frame of %d bytes: with crc at least 4", s.FrameBytes.Bytes)
	}
	switch {
	case s.Sink == "" && s.Source == rocelink.SourceExternal:
		s.Sink = SinkDiscard
	case s.Sink == "":
		s.Sink = SinkVerify
	case s.Sink == SinkVerify && s.Source == rocelink.SourceExternal:
		return s, bad("sink verify: the content of an external source is not known; use discard or file:PATH")
	case s.Sink == SinkVerify, s.Sink == SinkDiscard:
	case strings.HasPrefix(s.Sink, sinkFile) && len(s.Sink) > len(sinkFile):
		if s.Verb == rocelink.VerbRead {
			return s, bad("sink %s: a read stream brings nothing to this host", s.Sink)
		}
	default:
		return s, bad("sink %q: give verify, discard or file:PATH", s.Sink)
	}
	switch s.Mode {
	case "":
		s.Mode = modeEvent
	case modeEvent, modeBusy:
	default:
		return s, bad("mode %q: give event or busy", s.Mode)
	}
	if s.Batch == 0 {
		s.Batch = 16
	}
	if s.Batch < 1 || s.Batch > 256 {
		return s, bad("batch %d: give 1 to 256", s.Batch)
	}
	switch s.MTU {
	case 0, 256, 512, 1024, 2048, 4096:
	default:
		return s, bad("mtu %d: give 256, 512, 1024, 2048 or 4096", s.MTU)
	}
	if s.Burst < 0 || s.Window < 0 || s.Burst > math.MaxInt32 || s.Window > math.MaxInt32 {
		return s, bad("burst %d, window %d: give 0 or more", s.Burst, s.Window)
	}
	if s.CPU != nil && (*s.CPU < 0 || *s.CPU > 4095) {
		return s, bad("cpu %d: give a processor number", *s.CPU)
	}
	for _, f := range []struct {
		name string
		v    *int
		max  int
	}{{"rnr-retry", s.RNRRetry, 7}, {"retry", s.RetryCount, 7}, {"timeout", s.Timeout, 31}} {
		if f.v != nil && (*f.v < 0 || *f.v > f.max) {
			return s, bad("%s %d: give 0 to %d", f.name, *f.v, f.max)
		}
	}
	if s.Lease == 0 {
		s.Lease = rocelink.DefaultLeaseMillis * time.Millisecond
	}
	if ms := s.Lease.Milliseconds(); ms < rocelink.MinLeaseMillis || ms > rocelink.MaxLeaseMillis {
		return s, bad("lease %v: give %v to %v", s.Lease, rocelink.MinLeaseMillis*time.Millisecond, rocelink.MaxLeaseMillis*time.Millisecond)
	}
	return s, s.checkShare(asked)
}

// checkShare checks the name of the share, and says what the stream asks of it.
func (s *Spec) checkShare(asked bool) error {
	switch {
	case s.Share == "":
		return nil
	case s.Verb == rocelink.VerbWriteImm:
		return bad("share %s: a %s stream's receives are the credits of its own ring; share is for %s and %s", s.Share, s.Verb, rocelink.VerbSend, rocelink.VerbSendImm)
	case s.Verb != rocelink.VerbSend && s.Verb != rocelink.VerbSendImm:
		return bad("share %s: a %s stream takes no receives; share is for %s and %s", s.Share, s.Verb, rocelink.VerbSend, rocelink.VerbSendImm)
	}
	if err := rocelink.CheckName("share", s.Share); err != nil {
		return bad("%v", err)
	}
	if s.common == nil {
		s.common = &shared{frame: s.FrameBytes.Bytes, slots: s.Slots, asked: asked, mode: s.Mode, batch: s.Batch, cpu: s.CPU}
	}
	return nil
}

// defaultSlots is how many slots there are if nobody says.
func defaultSlots(stride uint64) int {
	return min(max(int(defaultRegion/stride), minDefault), maxDefault)
}

// checkRegion keeps a region within what a board can address.
func checkRegion(slots int, stride uint64) error {
	if stride*uint64(slots) >= rocelink.MaxRegion-creditBytes {
		return fmt.Errorf("region of %d slots of %d bytes: must stay below 4 GiB; give fewer slots or smaller frames", slots, stride)
	}
	return nil
}

// Verifies reports whether the content of the frames is known and checked.
func (s Spec) Verifies() bool { return s.Source != rocelink.SourceExternal && s.Sink != SinkDiscard }

// SinkFile is the path of a file sink.
func (s Spec) SinkFile() (path string, ok bool) { return strings.CutPrefix(s.Sink, sinkFile) }

// creditBytes is the room behind the slots for the word that counts released
// frames; a cache line of its own.
const creditBytes = 64

// stride is the distance between slots: the frame, the trailer of a write
// stream, rounded up to a cache line.
func (s Spec) stride() uint64 {
	n := s.FrameBytes.Bytes
	if s.Verb == rocelink.VerbWrite {
		n += rocelink.TrailerBytes
	}
	return roundStride(n)
}

func roundStride(n uint64) uint64 { return max((n+63)&^63, 64) }
