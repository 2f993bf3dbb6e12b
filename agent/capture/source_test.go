package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"rocelink/fpga/roce"
)

func threeFrames(t testing.TB) []taken {
	return whole(
		ether(t, board, packet(roce.SendOnly, 1, 0)),
		ether(t, board, packet(roce.SendOnly, 2, 5)),
		ether(t, board, packet(roce.SendOnly, 3, 64)),
	)
}

// A file cut anywhere gives what was before, and an error unless the cut is
// between records.
func TestTruncated(t *testing.T) {
	le := binary.LittleEndian
	frames := threeFrames(t)
	for name, make := range map[string]func(n int) []byte{
		"pcap":   func(n int) []byte { return pcap(linkEthernet, frames[:n]...) },
		"pcapng": func(n int) []byte { return ngFile(le, linkEthernet, frames[:n]) },
	} {
		t.Run(name, func(t *testing.T) {
			file := make(3)
			// Where a record or block ends, and how many packets there are.
			ends := map[int]int{}
			if name == "pcap" {
				for n := range 4 {
					ends[len(make(n))] = n
				}
			} else {
				packets := 0
				for at := 0; at < len(file); {
					if le.Uint32(file[at:]) == blockEnhanced {
						packets++
					}
					at += int(le.Uint32(file[at+4:]))
					ends[at] = packets
				}
			}
			packets := 0
			for cut := range len(file) + 1 {
				if n, ok := ends[cut]; ok {
					packets = n
				}
				var out bytes.Buffer
				_, err := Decode(&out, bytes.NewReader(file[:cut]), Options{JSON: true})
				if got := len(parseLines(t, out.Bytes())); got != packets {
					t.Fatalf("cut at %d: %d packets, want %d", cut, got, packets)
				}
				_, whole := ends[cut]
				switch {
				case whole:
					if err != nil {
						t.Fatalf("cut at %d, between records: %v", cut, err)
					}
				case cut < 4:
					if !errors.Is(err, ErrFormat) {
						t.Fatalf("cut at %d: %v", cut, err)
					}
				case !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), "at byte "):
					t.Fatalf("cut at %d: %v", cut, err)
				}
			}
			// The offset is that of the end, and of the record.
			_, err := Decode(io.Discard, bytes.NewReader(file[:len(file)-1]), Options{})
			begin := len(make(2))
			if name == "pcapng" {
				begin = len(file) - int(le.Uint32(file[len(file)-4:]))
			}
			want := fmt.Sprintf("at byte %d: the file ends inside a record that begins at byte %d", len(file)-1, begin)
			if err == nil || err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
		})
	}
}

func TestDamaged(t *testing.T) {
	le := binary.LittleEndian
	frames := threeFrames(t)
	good, ng := pcap(linkEthernet, frames...), ngFile(le, linkEthernet, frames)
	change := func(file []byte, at int, v uint32) []byte {
		b := bytes.Clone(file)
		le.PutUint32(b[at:], v)
		return b
	}
	second := pcapHeaderLen + pcapRecordLen + len(frames[0].data)
	head := append(ngSection(le), ngInterface(le, linkEthernet, 9, 0)...)
	enhanced := ngPacket(le, frames[0], 0)
	with := func(blocks ...[]byte) []byte { return append(bytes.Clone(head), bytes.Join(blocks, nil)...) }
	tests := []struct {
		name    string
		file    []byte
		is      error
		want    string
		packets int
	}{
		{"empty", nil, ErrFormat, "at byte 0: not a pcap or pcapng capture: it has 0 bytes", 0},
		{"text", []byte("hello, world"), ErrFormat, "it begins with 68 65 6c 6c", 0},
		{"gzip", []byte{0x1f, 0x8b, 8, 0, 0, 0}, ErrFormat, "gzip", 0},
		{"pcap version", change(good, 4, 0x00040003), ErrFormat, "major version 3", 0},
		{"pcap record too long", change(good, second+8, maxCaptured+1), ErrCorrupt, fmt.Sprintf("at byte %d: damaged record: capture length exceeds snap length: 262145", second), 1},
		{"pcap record of 4 GiB", change(good, second+8, 0xffffffff), ErrCorrupt, "4294967295", 1},
		{"pcap snap length and record of 4 GiB", change(change(good, 16, 0xffffffff), second+8, 0xfffffffe), ErrCorrupt, "4294967294", 1},
		{"pcap record longer than on the wire", change(good, second+12, 1), ErrCorrupt, "exceeds original packet length", 1},
		{"pcapng version", change(ng, 12, 9), ErrFormat, "pcapng Version", 0},
		{"pcapng byte order", change(ng, 8, 9), ErrCorrupt, "byte order magic", 0},
		{"block too short", with(ngBlock(le, blockInterface, []byte{1, 0, 0, 0})), ErrCorrupt, "block 4 bytes too short", 0},
		{"block length 4", with(enhanced, le.AppendUint32(le.AppendUint32(nil, 9), 4)), ErrCorrupt, fmt.Sprintf("at byte %d: damaged record: block of type 0x9 and 4 bytes", len(head)+len(enhanced)), 1},
		{"block length odd", with(enhanced, le.AppendUint32(le.AppendUint32(nil, 9), 21)), ErrCorrupt, "21 bytes", 1},
		{"lengths differ", with(enhanced, change(enhanced, len(enhanced)-4, 8)), ErrCorrupt, "ends with length 8", 1},
		{"no such interface", with(change(enhanced, 8, 1)), ErrCorrupt, fmt.Sprintf("at byte %d: damaged record: Interface id 1", len(head)), 0},
		{"captured beyond the block", with(change(enhanced, 20, 1000)), ErrCorrupt, fmt.Sprintf("at byte %d: damaged record: the packet is longer than its block", len(head)), 0},
		{"captured 4 GiB", with(change(enhanced, 20, 0xffffffff)), ErrCorrupt, "the packet is longer than its block", 0},
		{"captured beyond the block, another behind", with(change(enhanced, 20, 1000), bytes.Repeat(enhanced, 20)), ErrCorrupt, "the packet is longer than its block", 0},
		{"packet options beyond the block", with(enhanced, change(enhanced, len(enhanced)-24, 0x01000001), enhanced), ErrCorrupt, "the packet is longer than its block", 1},
		{"enhanced packet without a head", with(ngBlock(le, blockEnhanced, make([]byte, 8)), enhanced), ErrCorrupt, "", 0},
		{"simple packet without a length", with(ngBlock(le, blockSimple, nil), enhanced), ErrCorrupt, "the packet is longer than its block", 0},
		{"endless comments", with(enhanced, ngBlock(le, blockEnhanced, append(make([]byte, 20), bytes.Repeat(option(le, 1, []byte("abcd")), 1<<16)...))), ErrCorrupt, "the limit is", 1},
		{"section too short", append(bytes.Clone(head), ngBlock(le, blockSection, le.AppendUint32(nil, orderMagic))...), ErrCorrupt, "block 12 bytes too short", 0},
		{"section option beyond the block", append(bytes.Clone(head), ngBlock(le, blockSection, append(le.AppendUint32(nil, orderMagic), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 50, 0))...), ErrCorrupt, "option 2 of 50 bytes in 0", 0},
		{"simple before interface", append(ngSection(le), ngBlock(le, blockSimple, make([]byte, 20))...), ErrCorrupt, "At least one Interface", 0},
		{"resolution", append(append(ngSection(le), ngInterface(le, linkEthernet, 20, 0)...), enhanced...), ErrCorrupt, "units of 10^-20 seconds", 0},
		{"binary resolution", append(ngSection(le), ngInterface(le, linkEthernet, 0xff, 0)...), ErrCorrupt, "resolution 2^-127", 0},
		{"option beyond the block", append(ngSection(le), ngBlock(le, blockInterface, append(make([]byte, 8), 9, 0, 50, 0, 1, 0, 0, 0))...), ErrCorrupt, "option 9 of 50 bytes in 4", 0},
		{"too much about an interface", append(ngSection(le), ngBlock(le, blockInterface, make([]byte, maxBlock))...), ErrCorrupt, "the limit is", 0},
		{"too much about interfaces", append(ngSection(le), bytes.Repeat(ngBlock(le, blockInterface, append(make([]byte, 8), option(le, 3, make([]byte, 60000))...)), maxDescribed/60000+1)...), ErrCorrupt, "bytes about them", 0},
		{"too many interfaces", append(ngSection(le), bytes.Repeat(ngInterface(le, linkRaw, 0, 0), maxInterfaces+1)...), ErrCorrupt, "more than 4096 interfaces", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := decodeJSON(t, tt.file)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want %q", err, tt.want)
			}
			if len(got) != tt.packets {
				t.Errorf("%d packets before it, want %d", len(got), tt.packets)
			}
		})
	}
}

func TestReadError(t *testing.T) {
	file := pcap(linkEthernet, threeFrames(t)...)
	broken := io.MultiReader(bytes.NewReader(file[:150]), iotest.ErrReader(io.ErrNoProgress))
	got, _, err := decodeFrom(t, broken, Options{JSON: true})
	if !errors.Is(err, io.ErrNoProgress) || errors.Is(err, ErrCorrupt) || len(got) != 1 {
		t.Errorf("%d packets, %v", len(got), err)
	}
	// A reader that gives a byte at a time makes no difference.
	got, _, err = decodeFrom(t, iotest.OneByteReader(bytes.NewReader(file)), Options{JSON: true})
	if err != nil || len(got) != 3 {
		t.Errorf("%d packets, %v", len(got), err)
	}
}

// endless repeats a few records for ever, up to a limit.
type endless struct {
	unit  []byte
	at    int
	limit int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.limit <= 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), e.limit)], e.unit[e.at:])
	e.at = (e.at + n) % len(e.unit)
	e.limit -= int64(n)
	return n, nil
}

// Memory does not grow with the file, whatever it is full of.
func TestMemory(t *testing.T) {
	le := binary.LittleEndian
	frames := threeFrames(t)
	records := pcap(linkEthernet, frames...)[pcapHeaderLen:]
	names := ngBlock(le, 4, make([]byte, 1<<16))
	secrets := ngBlock(le, 10, make([]byte, 1<<16))
	comments := ngPacket(le, frames[0], 0)
	comments = ngBlock(le, blockEnhanced, append(bytes.Clone(comments[8:len(comments)-24]), bytes.Repeat(option(le, 1, []byte("abcd")), 8000)...))
	described := append(ngSection(le), bytes.Repeat(ngBlock(le, blockInterface, append(make([]byte, 8), option(le, 3, make([]byte, 60000))...)), 17)...)
	section := append(ngSection(le), bytes.Repeat(ngInterface(le, linkRaw, 0, 0), 100)...)
	var scattered []byte // flows and pairs without end
	for i := range 4096 {
		b := bytes.Clone(frames[2].data)
		binary.BigEndian.PutUint16(b[26:], uint16(i))
		b[47] = byte(i)
		scattered = append(scattered, pcap(linkEthernet, taken{data: resum(b)})[pcapHeaderLen:]...)
	}
	const size = 64 << 20
	for name, in := range map[string]io.Reader{
		"records": io.MultiReader(bytes.NewReader(pcap(linkEthernet)), &endless{unit: records, limit: size / int64(len(records)) * int64(len(records))}),
		"names":   io.MultiReader(bytes.NewReader(ngSection(le)), &endless{unit: names, limit: size / int64(len(names)) * int64(len(names))}),
		"secrets": io.MultiReader(bytes.NewReader(ngSection(le)), &endless{unit: secrets, limit: size / int64(len(secrets)) * int64(len(secrets))}),
		"comments": io.MultiReader(bytes.NewReader(append(ngSection(le), ngInterface(le, linkEthernet, 9, 0)...)),
			&endless{unit: comments, limit: size / int64(len(comments)) * int64(len(comments))}),
		"interfaces": &endless{unit: described, limit: size / int64(len(described)) * int64(len(described))},
		"sections":   io.MultiReader(&endless{unit: section, limit: size / int64(len(section)) * int64(len(section))}),
		"one block": io.MultiReader(bytes.NewReader(append(ngSection(le), 9, 0, 0, 0, 0, 0, 0, 4)),
			&endless{unit: make([]byte, 4096), limit: 64<<20 - 12}, bytes.NewReader([]byte{0, 0, 0, 4})),
		"flows": io.MultiReader(bytes.NewReader(pcap(linkEthernet)), &endless{unit: scattered, limit: size / int64(len(scattered)) * int64(len(scattered))}),
	} {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s, err := Decode(io.Discard, in, Options{MaxFlows: 64})
			runtime.GC()
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Flows) > 64 {
				t.Errorf("%d flows", len(s.Flows))
			}
			if peak := int64(after.HeapSys) - int64(before.HeapSys); peak > 24<<20 {
				t.Errorf("the heap grew by %d bytes over %d", peak, size)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	frames := threeFrames(f)
	for _, v := range vectors(f) {
		frames = append(frames, taken{data: v.Bytes})
	}
	frames = append(frames, taken{data: ether(f, board6, packet(roce.WriteFirst, 3, 256)), length: 5000})
	for _, link := range []linkType{linkEthernet, linkCooked, linkCooked2, linkRaw, linkNull} {
		var on []taken
		for _, c := range frames {
			c.data = onLink(link, c.data)
			on = append(on, c)
		}
		f.Add(pcap(link, on...))
		f.Add(pcapFile(binary.BigEndian, false, link, on))
		f.Add(ngFile(binary.LittleEndian, link, on))
		f.Add(ngFile(binary.BigEndian, link, on))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, s, err := decodeFrom(t, bytes.NewReader(b), Options{JSON: true})
		if uint64(len(got)) != s.Packets {
			t.Errorf("%d objects, %d counted", len(got), s.Packets)
		}
		if err != nil && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrCorrupt) {
			t.Errorf("error of no kind: %v", err)
		}
		var inFlows uint64
		for _, f := range s.Flows {
			inFlows += f.Packets
		}
		if inFlows+s.Beyond > s.Packets || s.Packets > s.Frames*4096 {
			t.Errorf("counts do not add up: %+v", s)
		}
		// Text comes to the same.
		again, err2 := Decode(io.Discard, bytes.NewReader(b), Options{})
		if (err == nil) != (err2 == nil) || again.Packets != s.Packets || again.BadICRC != s.BadICRC {
			t.Errorf("text: %v and %+v, JSON: %v and %+v", err2, again, err, s)
		}
	})
}

// FuzzPacket puts arbitrary bytes where they matter: behind the UDP header.
func FuzzPacket(f *testing.F) {
	for _, op := range []roce.Opcode{roce.SendOnly, roce.WriteOnlyImm, roce.ReadRequest, roce.Acknowledge, roce.WriteFirst} {
		n := 0
		if op.HasPayload() {
			n = 256
		}
		b := ether(f, board, packet(op, 5, n))
		f.Add(b[42:], uint16(len(b)-34), uint16(0), true)
	}
	f.Fuzz(func(t *testing.T, payload []byte, udpLen, cut uint16, seal bool) {
		payload = payload[:min(len(payload), 60000)]
		b := append(bytes.Clone(ether(t, board, packet(roce.SendOnly, 0, 64))[:42]), payload...)
		binary.BigEndian.PutUint16(b[16:], uint16(28+len(payload)))
		binary.BigEndian.PutUint16(b[38:], udpLen)
		resum(b)
		if seal && len(payload) >= 16 {
			reseal(b)
		}
		c := taken{data: b[:max(0, len(b)-int(cut))], length: len(b)}
		got, s, err := decodeJSON(t, pcap(linkEthernet, c))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case len(c.data) >= 38 && len(got) == 0:
			t.Error("a packet to the port is missing")
		case len(got) == 0:
		case cut == 0 && seal && len(payload) >= 16 && got[0].ICRC != "ok":
			t.Errorf("ICRC %s of a sealed packet", got[0].ICRC)
		case len(c.data) < len(b) && got[0].ICRC != "unchecked":
			t.Errorf("ICRC %s of a cut packet", got[0].ICRC)
		case s.Malformed > s.Packets:
			t.Errorf("%+v", s)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range []int{64, 1024, 4096} {
		var frames []taken
		for i := range 1000 {
			frames = append(frames, taken{data: ether(b, board, packet(roce.WriteOnlyImm, roce.PSN(i), size))})
		}
		file := pcap(linkEthernet, frames...)
		for name, o := range map[string]Options{"text": {}, "json": {JSON: true}} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(file)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Decode(io.Discard, bytes.NewReader(file), o); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "packets/s")
			})
		}
	}
}
