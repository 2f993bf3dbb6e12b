package roce

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPSN(t *testing.T) {
	for _, tt := range []struct {
		p, q PSN
		want int
	}{
		{1, 0xfffffe, 3},
		{0xfffffe, 1, -3},
		{0, 0, 0},
		{0, 0xffffff, 1},
		{0x7fffff, 0, 1<<23 - 1},
		{0x800000, 0, -1 << 23},
		{0, 0x800000, -1 << 23},
		{5, 3, 2},
	} {
		if got := tt.p.Sub(tt.q); got != tt.want {
			t.Errorf("%#x - %#x = %d, want %d", tt.p, tt.q, got, tt.want)
		}
		if got := tt.q.Add(tt.want); got != tt.p {
			t.Errorf("%#x + %d = %#x, want %#x", tt.q, tt.want, got, tt.p)
		}
	}
	if got := PSN(0xffffff).Next(); got != 0 {
		t.Errorf("next of the last = %#x", got)
	}
	if got := PSN(3).Add(-5); got != 0xfffffe {
		t.Errorf("3-5 = %#x", got)
	}
	if got := PSN(3).Add(1 << 24); got != 3 {
		t.Errorf("3+2^24 = %#x", got)
	}
}

func TestMTU(t *testing.T) {
	for netdev, want := range map[int]MTU{
		0: 0, 68: 0, 351: 0, 352: 256, 576: 256, 1280: 1024, 1500: 1024, 2200: 2048,
		4096: 2048, 4191: 2048, 4192: 4096, 4200: 4096, 9000: 4096, 65536: 4096,
	} {
		if got := MTUForNetdev(netdev); got != want {
			t.Errorf("netdev MTU %d: path MTU %d, want %d", netdev, got, want)
		}
	}
	for m := -1; m <= 8192; m++ {
		code := MTU(m).Code()
		back, err := MTUFromCode(code)
		if MTU(m).Valid() != (code != 0) || code != 0 && (err != nil || back != MTU(m)) {
			t.Errorf("MTU %d: valid %v, code %d, back %d, %v", m, MTU(m).Valid(), code, back, err)
		}
	}
	for _, c := range []uint8{0, 6, 255} {
		if _, err := MTUFromCode(c); !errors.Is(err, ErrMTU) {
			t.Errorf("code %d: %v", c, err)
		}
	}
	for n, want := range map[int]int{0: 1, 1: 1, 1023: 1, 1024: 1, 1025: 2, 2048: 2, 8192: 8, 8193: 9} {
		if got := MTU(1024).Packets(n); got != want {
			t.Errorf("%d bytes: %d packets, want %d", n, got, want)
		}
	}
}

func TestOpcode(t *testing.T) {
	// Written out by hand from the operation codes of the specification.
	const (
		r = 1 << iota // RETH
		a             // AETH
		i             // immediate
		q             // request
		f
		m
		l
		o
	)
	want := map[Opcode]struct {
		name  string
		flags int
		bytes int
	}{
		0x00: {"SEND_FIRST", q | f, 12},
		0x01: {"SEND_MIDDLE", q | m, 12},
		0x02: {"SEND_LAST", q | l, 12},
		0x03: {"SEND_LAST_IMM", q | l | i, 16},
		0x04: {"SEND_ONLY", q | o, 12},
		0x05: {"SEND_ONLY_IMM", q | o | i, 16},
		0x06: {"WRITE_FIRST", q | f | r, 28},
		0x07: {"WRITE_MIDDLE", q | m, 12},
		0x08: {"WRITE_LAST", q | l, 12},
		0x09: {"WRITE_LAST_IMM", q | l | i, 16},
		0x0a: {"WRITE_ONLY", q | o | r, 28},
		0x0b: {"WRITE_ONLY_IMM", q | o | r | i, 32},
		0x0c: {"READ_REQUEST", q | r, 28},
		0x0d: {"READ_RESPONSE_FIRST", f | a, 16},
		0x0e: {"READ_RESPONSE_MIDDLE", m, 12},
		0x0f: {"READ_RESPONSE_LAST", l | a, 16},
		0x10: {"READ_RESPONSE_ONLY", o | a, 16},
		0x11: {"ACKNOWLEDGE", a, 16},
	}
	for n := range 256 {
		op := Opcode(n)
		w, known := want[op]
		if op.Known() != known {
			t.Errorf("%v: known %v", op, op.Known())
			continue
		}
		flags := 0
		for bit, has := range map[int]bool{
			r: op.HasRETH(), a: op.HasAETH(), i: op.HasImm(), q: op.IsRequest(),
			f: op.IsFirst(), m: op.IsMiddle(), l: op.IsLast(), o: op.IsOnly(),
		} {
			if has {
				flags |= bit
			}
		}
		if flags != w.flags {
			t.Errorf("%v: properties %08b, want %08b", op, flags, w.flags)
		}
		if !known {
			if op.IsSend() || op.IsWrite() || op.IsReadResponse() || op.HasPayload() {
				t.Errorf("%v is not known but has a kind", op)
			}
			continue
		}
		if op.String() != w.name || op.HeaderLen() != w.bytes {
			t.Errorf("%#x: %v, %d bytes, want %s, %d", n, op, op.HeaderLen(), w.name, w.bytes)
		}
		if op.Starts() != (op.IsFirst() || op.IsOnly()) || op.Ends() != (op.IsLast() || op.IsOnly()) {
			t.Errorf("%v: starts %v, ends %v", op, op.Starts(), op.Ends())
		}
		if op.IsSend() != strings.HasPrefix(w.name, "SEND") ||
			op.IsWrite() != strings.HasPrefix(w.name, "WRITE") ||
			op.IsReadResponse() != strings.HasPrefix(w.name, "READ_RESPONSE") {
			t.Errorf("%v: send %v, write %v, read response %v", op, op.IsSend(), op.IsWrite(), op.IsReadResponse())
		}
	}
	for op, name := range map[Opcode]string{
		0x12: "ATOMIC_ACKNOWLEDGE", 0x13: "COMPARE_SWAP", 0x14: "FETCH_ADD", 0x15: "OPCODE_0x15",
		0x16: "SEND_LAST_INV", 0x17: "SEND_ONLY_INV", 0x18: "OPCODE_0x18", 0x81: "OPCODE_0x81",
	} {
		if op.String() != name {
			t.Errorf("%#x is %q, want %q", uint8(op), op.String(), name)
		}
	}
}

func TestInMessage(t *testing.T) {
	for _, tt := range []struct{ only, first, middle, last Opcode }{
		{SendOnly, SendFirst, SendMiddle, SendLast},
		{SendOnlyImm, SendFirst, SendMiddle, SendLastImm},
		{WriteOnly, WriteFirst, WriteMiddle, WriteLast},
		{WriteOnlyImm, WriteFirst, WriteMiddle, WriteLastImm},
		{ReadResponseOnly, ReadResponseFirst, ReadResponseMiddle, ReadResponseLast},
		{ReadRequest, ReadRequest, ReadRequest, ReadRequest},
	} {
		for _, c := range []struct {
			first, last bool
			want        Opcode
		}{{true, true, tt.only}, {true, false, tt.first}, {false, false, tt.middle}, {false, true, tt.last}} {
			if got := tt.only.InMessage(c.first, c.last); got != c.want {
				t.Errorf("%v, first %v, last %v: %v, want %v", tt.only, c.first, c.last, got, c.want)
			}
		}
	}
}

func TestSyndrome(t *testing.T) {
	for n := range 256 {
		s := Syndrome(n)
		kinds := 0
		for _, k := range []bool{s.IsACK(), s.IsRNR(), s.IsNAK()} {
			if k {
				kinds++
			}
		}
		reserved := n >= 0x80 || n>>5 == 2
		if kinds == 1 == reserved || kinds > 1 {
			t.Errorf("%#02x is %d kinds", n, kinds)
		}
		if s.String() == "" {
			t.Errorf("%#02x has no text", n)
		}
	}
	for code := range uint8(32) {
		if s := ACK(code); !s.IsACK() || s.Credits() != code {
			t.Errorf("ACK %d: %#x", code, s)
		}
		if s := RNRNak(code); !s.IsRNR() || s.RNRTimer() != code || s.Credits() != CreditsInvalid {
			t.Errorf("RNR %d: %#x", code, s)
		}
		if s := Nak(NakCode(code)); !s.IsNAK() || s.NakCode() != NakCode(code) {
			t.Errorf("NAK %d: %#x", code, s)
		}
	}
	for s, want := range map[Syndrome]string{
		0x1f: "ACK", 0x00: "ACK, credit code 0", 0x2c: "RNR, wait 640µs",
		0x60: "NAK, PSN sequence error", 0x61: "NAK, invalid request",
		0x62: "NAK, remote access error", 0x63: "NAK, remote operational error",
		0x65: "NAK, NAK code 5", 0xff: "syndrome 0xff",
	} {
		if s.String() != want {
			t.Errorf("%#02x is %q, want %q", uint8(s), s, want)
		}
	}
}

func TestTimers(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond,
		13: 960 * time.Microsecond, 14: 1280 * time.Microsecond, 31: 491520 * time.Microsecond,
		32: 655360 * time.Microsecond,
	} {
		if got := RNRDelay(code); got != want {
			t.Errorf("RNR timer %d = %v, want %v", code, got, want)
		}
	}
	// From code 3 on each second code doubles the delay.
	for code := uint8(3); code < 30; code++ {
		if a, b := RNRDelay(code), RNRDelay(code+2); b != 2*a && code > 3 {
			t.Errorf("RNR timer %d = %v, %d = %v", code, a, code+2, b)
		}
	}
	for exp, want := range map[uint8]time.Duration{
		0: 0, 1: 8192, 14: 67108864, 18: 1073741824, 31: 4096 << 31, 32: 0,
	} {
		if got := AckTimeout(exp); got != want {
			t.Errorf("ACK timeout %d = %v, want %v", exp, got, want)
		}
	}
}

func TestMAC(t *testing.T) {
	for _, s := range []string{"02:00:00:00:00:0a", "02-00-00-00-00-0A"} {
		m, err := ParseMAC(s)
		if err != nil || m != (MAC{2, 0, 0, 0, 0, 10}) || m.String() != "02:00:00:00:00:0a" {
			t.Errorf("%q: %v, %v", s, m, err)
		}
	}
	for _, s := range []string{"", "02:00:00:00:00", "02:00:00:00:00:0g", "02:00:00:00:00:0a:01",
		"0200.0000.000a", "02:00:00:00-00:0a", "+2:00:00:00:00:0a", "02 00 00 00 00 0a"} {
		if m, err := ParseMAC(s); !errors.Is(err, ErrMAC) {
			t.Errorf("%q: %v, %v", s, m, err)
		}
	}
	for m, want := range map[MAC]bool{
		{}: false, {1, 0, 0x5e, 0, 0, 1}: false, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}: false,
		{2, 0, 0, 0, 0, 1}: true,
	} {
		if m.IsUnicast() != want {
			t.Errorf("%v: unicast %v", m, !want)
		}
	}
}

func TestCeiling(t *testing.T) {
	// What 100 Gb/s can carry, in Gb/s.
	for _, tt := range []struct {
		ops  []Opcode
		want map[MTU]float64
	}{
		{[]Opcode{SendFirst, SendMiddle, SendLast, SendOnly, WriteMiddle, WriteLast},
			map[MTU]float64{256: 75.740, 1024: 92.586, 2048: 96.150, 4096: 98.037}},
		{[]Opcode{WriteFirst, WriteOnly},
			map[MTU]float64{1024: 91.266, 2048: 95.433, 4096: 97.663}},
		{[]Opcode{ReadResponseFirst, ReadResponseLast, ReadResponseOnly, SendLastImm},
			map[MTU]float64{1024: 92.252, 4096: 97.944}},
	} {
		for _, op := range tt.ops {
			for mtu, want := range tt.want {
				if got := 100 * Ceiling(op, mtu, false); got < want-0.0005 || got > want+0.0005 {
					t.Errorf("%v at %d: %.4f Gb/s, want %.3f", op, mtu, got, want)
				}
			}
		}
	}
	if Ceiling(SendOnly, 4096, true) >= Ceiling(SendOnly, 4096, false) {
		t.Error("IPv6 costs nothing")
	}
	if Ceiling(ReadRequest, 4096, false) != 0 || Ceiling(SendOnly, 1000, false) != 0 {
		t.Error("a ceiling of what carries nothing")
	}
	// ACK: 62 bytes; a SEND of nothing is padded to 60.
	if got := WireBytes(Acknowledge, 0, false); got != 62+24 {
		t.Errorf("ACK takes %d", got)
	}
	if got := WireBytes(SendOnly, 0, false); got != 60+24 {
		t.Errorf("empty SEND takes %d", got)
	}
}

func TestMessageCeiling(t *testing.T) {
	for _, only := range []Opcode{SendOnly, SendOnlyImm, WriteOnly, WriteOnlyImm, ReadResponseOnly} {
		for _, size := range []int{1, 1023, 1024, 1025, 2048, 2049, 8192, 8193, 65536} {
			wire := 0
			for left := size; left > 0; left -= min(left, 1024) {
				wire += WireBytes(only.InMessage(left == size, left <= 1024), min(left, 1024), false)
			}
			want := float64(size) / float64(wire)
			if got := MessageCeiling(only, size, 1024, false); got != want {
				t.Errorf("%v of %d: %v, want %v", only, size, got, want)
			}
		}
	}
	if MessageCeiling(SendFirst, 100, 1024, false) != 0 || MessageCeiling(SendOnly, 0, 1024, false) != 0 {
		t.Error("a ceiling of what is no message")
	}
}
