package stream

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"rocelink"
)

func TestParseSpec(t *testing.T) {
	s, err := ParseSpec("name=a,board=demo,verb=write,frame=64KiB,slots=32,source=counter,rate=2.5G,burst=4,count=100,sink=file:x=y,mode=busy,batch=64,mtu=1024,cpu=1,lease=2s,crc=true,retry=3,rnr-retry=0,timeout=0,window=9,free-running=true")
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.Complete(); err != nil {
		t.Fatal(err)
	}
	if s.FrameBytes.Bytes != 65536 || s.Rate.kbps() != 2_500_000 || s.Sink != "file:x=y" || *s.CPU != 1 || s.Lease != 2*time.Second || *s.RNRRetry != 0 || *s.Timeout != 0 {
		t.Errorf("%+v", s)
	}
	var fromFile Spec
	if err := yaml.UnmarshalWithOptions([]byte("board: demo\nverb: write\nframe: 64KiB\nrate: 800M\nlease: 2s\ncpu: 1\nfree-running: true\n"), &fromFile, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if fromFile.FrameBytes.Bytes != 65536 || fromFile.Rate.kbps() != 800_000 || fromFile.Lease != 2*time.Second || !fromFile.FreeRunning {
		t.Errorf("from YAML: %+v", fromFile)
	}
}

// Each bad setting is refused by a message that names it.
func TestSpecRefuses(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{"", "key=value"},
		{"board", "key=value"},
		{"board=a,board=b", "board is given twice"},
		{"colour=red", "colour"},
		{"board=demo,verb=shout", "verb"},
		{"verb=send", "board name"},
		{"board=demo,name=" + strings.Repeat("x", 65), "stream name"},
		{"board=demo,frame=1.5KiB", "frame"},
		{"board=demo,frame=-1", "frame"},
		{"board=demo,frame=5 furlongs", "frame"},
		{"board=demo,frame=99999999999999999999", "frame"},
		{"board=demo,frame=2GiB", "frame of 2147483648 bytes"},
		{"board=demo,frame=16777216GiB", "frame"},
		{"board=demo,slots=1", "slots 1"},
		{"board=demo,slots=-3", "slots -3"},
		{"board=demo,slots=20000", "receives"},
		{"board=demo,frame=1MiB,slots=4096", "4 GiB"},
		{"board=demo,frame=64MiB,slots=64,verb=write", "4 GiB"},
		{"board=demo,source=sun", "source"},
		{"board=demo,verb=read,source=external", "read stream"},
		{"board=demo,source=external,crc=true", "crc"},
		{"board=demo,source=external,frame=0", "external source needs frames"},
		{"board=demo,frame=3,crc=true", "crc"},
		{"board=demo,sink=verify,source=external", "verify"},
		{"board=demo,sink=file:", "sink"},
		{"board=demo,sink=file:x,verb=read", "read stream"},
		{"board=demo,mode=lazy", "mode"},
		{"board=demo,batch=257", "batch 257"},
		{"board=demo,mtu=1500", "mtu 1500"},
		{"board=demo,cpu=-1", "cpu -1"},
		{"board=demo,lease=1ms", "lease 1ms"},
		{"board=demo,lease=1", "lease"},
		{"board=demo,rate=1", "rate"},
		{"board=demo,rate=-1G", "rate"},
		{"board=demo,rate=NaN", "rate"},
		{"board=demo,rate=1e99G", "rate"},
		{"board=demo,rnr-retry=8", "rnr-retry 8"},
		{"board=demo,timeout=32", "timeout 32"},
		{"board=demo,burst=-1", "burst -1"},
		{"board=demo,verb=write,share=x", "share x: a write stream takes no receives"},
		{"board=demo,verb=read,share=x", "share x: a read stream takes no receives"},
		{"board=demo,verb=write-imm,share=x", "share x: a write-imm stream's receives are the credits of its own ring"},
		{"board=demo,share=a\nb", "share name"},
		{"board=demo,share=" + strings.Repeat("x", 65), "share name"},
	} {
		s, err := ParseSpec(tc.spec)
		if err == nil {
			_, err = s.Complete()
		}
		if err == nil {
			t.Errorf("%q was accepted", tc.spec)
		} else if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %q does not name %q", tc.spec, err, tc.want)
		}
	}
}

func TestSpecDefaults(t *testing.T) {
	for _, v := range rocelink.Verbs {
		for _, frame := range []uint64{0, 1, 4096, 65536, 1 << 20, 16 << 20} {
			s, err := (Spec{Board: "b", Verb: v, FrameBytes: SizeOf(frame)}).Complete()
			if err != nil {
				t.Errorf("%s of %d bytes: %v", v, frame, err)
				continue
			}
			if s.FrameBytes.Bytes != frame {
				t.Errorf("%s: frame of %d became %d", v, frame, s.FrameBytes.Bytes)
			}
			if s.stride()%8 != 0 || s.stride() < frame || v == rocelink.VerbWrite && s.stride() < frame+rocelink.TrailerBytes {
				t.Errorf("%s of %d bytes: stride %d", v, frame, s.stride())
			}
			if s.Slots < 2 || s.Slots > maxDefault {
				t.Errorf("%s of %d bytes: %d slots", v, frame, s.Slots)
			}
		}
	}
	s, err := (Spec{Board: "b"}).Complete()
	if err != nil || s.FrameBytes.Bytes != 65536 || s.Name != "send" || s.Sink != SinkVerify {
		t.Errorf("%+v, %v", s, err)
	}
}

// What streams of a share have in common is settled over all of them, in any
// order.
func TestSharesAreSettled(t *testing.T) {
	three := 3
	big := Spec{Name: "a", Board: "b", FrameBytes: SizeOf(1 << 20), Share: "x"}
	small := Spec{Name: "c", Board: "b", FrameBytes: SizeOf(100), Share: "x"}
	many := Spec{Name: "d", Board: "b", FrameBytes: SizeOf(100), Slots: 40, Share: "x"}
	few := Spec{Name: "e", Board: "b", FrameBytes: SizeOf(100), Slots: 4, Share: "x"}
	own := Spec{Name: "o", Board: "b", FrameBytes: SizeOf(16 << 20)}
	other := Spec{Name: "p", Board: "b", FrameBytes: SizeOf(16 << 20), Slots: 2, Share: "y", Mode: "busy", CPU: &three}
	for name, tc := range map[string]struct {
		specs []Spec
		frame uint64
		slots int
	}{
		"slots that nobody gives fit the largest frame": {[]Spec{small, big}, 1 << 20, 16},
		"the largest first":                             {[]Spec{big, small}, 1 << 20, 16},
		"slots that one gives":                          {[]Spec{small, few, big}, 1 << 20, 4},
		"slots that two give":                           {[]Spec{many, few, small}, 100, 40},
		"others do not count":                           {[]Spec{other, few, own}, 100, 4},
	} {
		done, err := CompleteAll(tc.specs)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, s := range done {
			switch again, err := s.Complete(); {
			case err != nil || again.common != s.common:
				t.Errorf("%s: completed again: %v", name, err)
			case tc.specs[i].Share == "" && s.common != nil:
				t.Errorf("%s: %s shares", name, s.Name)
			case tc.specs[i].Share == "x" && (s.common.frame != tc.frame || s.common.slots != tc.slots):
				t.Errorf("%s: %s has %+v, want %d slots for %d bytes", name, s.Name, s.common, tc.slots, tc.frame)
			case s.FrameBytes != tc.specs[i].FrameBytes:
				t.Errorf("%s: %s has frames of %d", name, s.Name, s.FrameBytes.Bytes)
			}
		}
	}
	for want, change := range map[string]func(*Spec){
		"mode event, another mode busy":  func(s *Spec) { s.Mode = "busy" },
		"batch 16, another batch 64":     func(s *Spec) { s.Batch = 64 },
		"cpu none, another cpu 3":        func(s *Spec) { s.CPU = &three },
		"must stay below 4 GiB":          func(s *Spec) { s.FrameBytes, s.Slots = SizeOf(0), 16384 },
		"two streams are called a":       func(s *Spec) { s.Name = "a" },
		"stream 2: bad stream setting: ": func(s *Spec) { s.Verb = rocelink.VerbRead },
	} {
		s := small
		change(&s)
		if _, err := CompleteAll([]Spec{big, s}); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "stream 2: ") {
			t.Errorf("error %v does not name %q", err, want)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add("board=demo,verb=write,frame=64KiB,rate=1G")
	f.Add("cpu=,lease=9999h,rate=.")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec(text)
		if err != nil {
			return
		}
		if s, err = s.Complete(); err == nil && s.stride()*uint64(s.Slots) >= rocelink.MaxRegion {
			t.Errorf("%q: region of %d bytes", text, s.stride()*uint64(s.Slots))
		}
	})
}
