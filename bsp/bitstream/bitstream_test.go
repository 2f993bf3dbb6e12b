package bitstream_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"rocelink/bsp/bitstream"
	"rocelink/bsp/bitstream/bitstreamtest"
)

const (
	zu28 = 0x147E0093
	name = "top;COMPRESS=TRUE;UserID=0XFFFFFFFF;SW_CRC=1a2b3c4d;Version=2023.2"
	part = "xczu28dr-ffvg1517-2-e"
)

func bit() []byte {
	return bitstreamtest.Bit(name, part, bitstreamtest.Config{IDCode: zu28}.Data(false))
}

func inspect(t *testing.T, file []byte) bitstream.Info {
	t.Helper()
	i, err := bitstream.Inspect(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestBit(t *testing.T) {
	file := bit()
	i := inspect(t, file)
	h, c := i.Header, i.Config
	if i.Format != bitstream.Bit || i.Device != "xczu28dr" || i.IDCode != zu28 || i.Part != part || i.Size != int64(len(file)) || i.Encrypted {
		t.Errorf("%+v", i)
	}
	if sum := sha256.Sum256(file); i.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s", i.SHA256)
	}
	if h.Design != "top" || h.Part != part || h.Date != "2024-02-29" || h.Time != "12:34:56" || h.UserID != "0XFFFFFFFF" ||
		h.Version != "2023.2" || h.CRC != "1a2b3c4d" || len(h.Options) != 1 || h.Options[0] != "COMPRESS=TRUE" {
		t.Errorf("header %+v", h)
	}
	if c.ByteOrder != bitstream.BigEndian || c.SyncOffset != bitstreamtest.Padding || c.FrameWords != 8 || c.FrameWrites != 1 ||
		c.Compressed || c.CRC != 0xC0FFEE00 || c.UserAccess != 0x20240229 || !c.Desynced {
		t.Errorf("config %+v", c)
	}
	if len(i.Problems) != 0 {
		t.Error(i.Problems)
	}
}

func TestBin(t *testing.T) {
	for _, c := range []struct {
		name string
		file []byte
		ok   func(i bitstream.Info) bool
	}{
		{"swapped", bitstreamtest.Config{IDCode: 0x147FB093}.Data(true), func(i bitstream.Info) bool {
			return i.Device == "xczu48dr" && i.Part == "xczu48dr" && i.Config.ByteOrder == bitstream.Swapped && len(i.Problems) == 0
		}},
		{"big-endian, another silicon revision", bitstreamtest.Config{IDCode: 0x047FE093}.Data(false), func(i bitstream.Info) bool {
			return i.Device == "xczu49dr" && i.Config.ByteOrder == bitstream.BigEndian
		}},
		{"unknown device", bitstreamtest.Config{IDCode: 0x13631093}.Data(true), func(i bitstream.Info) bool {
			return i.Device == "" && i.IDCode.String() == "0x13631093"
		}},
		{"no device", bitstreamtest.Config{}.Data(true), func(i bitstream.Info) bool { return len(i.Problems) == 1 }},
		{"compressed", bitstreamtest.Config{IDCode: zu28, Compressed: true}.Data(true), func(i bitstream.Info) bool { return i.Config.Compressed }},
		{"encrypted", bitstreamtest.Config{Encrypted: true}.Data(true), func(i bitstream.Info) bool { return i.Encrypted && len(i.Problems) == 0 }},
		{"without DESYNC", bitstreamtest.Config{IDCode: zu28, NoDesync: true}.Data(true), func(i bitstream.Info) bool {
			return !i.Config.Desynced && len(i.Problems) == 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i := inspect(t, c.file); i.Format != bitstream.Bin || !c.ok(i) {
				t.Errorf("%+v\n%+v", i, i.Config)
			}
		})
	}
}

func TestContradictions(t *testing.T) {
	data := bitstreamtest.Config{IDCode: zu28}.Data(false)
	for _, c := range []struct {
		name, want string
		file       []byte
	}{
		{"another part", "the data is for xczu28dr", bitstreamtest.Bit("top", "xczu48dr-ffvg1517-2-e", data)},
		{"part that begins alike", "the data is for xczu2", bitstreamtest.Bit("top", part, bitstreamtest.Config{IDCode: 0x14711093}.Data(false))},
		{"more than the header says", "bytes follow", append(bit(), 0, 0, 0, 0)},
		{"swapped", "swapped", bitstreamtest.Bit("top", part, bitstreamtest.Config{IDCode: zu28}.Data(true))},
	} {
		i := inspect(t, c.file)
		if len(i.Problems) != 1 || !strings.Contains(i.Problems[0], c.want) {
			t.Errorf("%s: %q", c.name, i.Problems)
		}
	}
}

func TestPDI(t *testing.T) {
	for _, p := range []bitstreamtest.PDI{{IDCode: 0x14CA8093}, {IDCode: 0x14CA8093, Partial: true}} {
		i := inspect(t, p.Bytes())
		kind := map[bool]string{true: "partial", false: "full"}[p.Partial]
		if i.Format != bitstream.PDI || i.Device != "xcvc1902" || i.PDI.Kind != kind || !i.PDI.ChecksumOK || i.PDI.Partitions != 2 ||
			len(i.PDI.Images) != 2 || i.PDI.Images[1].Name != "pl_cfi" || i.PDI.Images[1].ID != 0x1C000002 ||
			i.PDI.ID != 2 || i.PDI.Parent != 1 || i.PDI.ExtendedID != 1 || i.Encrypted || len(i.Problems) != 0 {
			t.Errorf("%+v\n%+v", i, i.PDI)
		}
	}
	i := inspect(t, bitstreamtest.PDI{IDCode: 0x14CA8093, Encrypted: true}.Bytes())
	if !i.Encrypted || len(i.PDI.Images) != 0 {
		t.Errorf("encrypted: %+v", i)
	}
	for _, at := range []int{0x40, bitstreamtest.TableAt + 0x20, bitstreamtest.TableAt + 0x90, bitstreamtest.TableAt + 0x110} {
		file := bitstreamtest.PDI{IDCode: 0x14CA8093}.Bytes()
		file[at] ^= 0x10
		if i := inspect(t, file); i.PDI.ChecksumOK || len(i.Problems) != 1 {
			t.Errorf("byte 0x%X changed: checksum ok %v, %q", at, i.PDI.ChecksumOK, i.Problems)
		}
	}
}

func TestRefused(t *testing.T) {
	boot := make([]byte, 256)
	copy(boot[0x20:], "\x66\x55\x99\xAAXNLX")
	odd := append([]byte{0xFF}, bitstreamtest.Config{IDCode: zu28}.Data(true)...)
	wrongTable := bitstreamtest.PDI{}.Bytes()
	wrongTable[bitstreamtest.TableAt+0x28]++
	entries := bitstreamtest.PDI{}.Bytes()
	entries[bitstreamtest.TableAt+0x07] = 0xFF
	far := bitstreamtest.PDI{}.Bytes()
	far[bitstreamtest.TableAt+0x0B] = 0x3F
	pdi := bitstreamtest.PDI{}.Bytes()
	for _, c := range []struct {
		name string
		file []byte
		want error
	}{
		{"empty", nil, bitstream.ErrNoSync},
		{"zeros", make([]byte, 1<<17), bitstream.ErrNoSync},
		{"text", []byte("not a bitstream"), bitstream.ErrNoSync},
		{"ELF", append([]byte("\x7fELF"), make([]byte, 100)...), bitstream.ErrNoSync},
		{".bit without sync word", bitstreamtest.Bit("top", part, make([]byte, 400)), bitstream.ErrNoSync},
		{"BOOT.BIN", boot, bitstream.ErrBootImage},
		{"sync word off the word boundary", append(odd, 0, 0, 0), bitstream.ErrHeader},
		{".bit that ends in the header", bit()[:30], bitstream.ErrTruncated},
		{".bit that ends in the data", bit()[:len(bit())-10], bitstream.ErrTruncated},
		{".bin that ends in a word", bitstreamtest.Config{IDCode: zu28}.Data(true)[:150], bitstream.ErrTruncated},
		{".bin that ends in the frames", bitstreamtest.Config{IDCode: zu28}.Data(true)[:140], bitstream.ErrTruncated},
		{"first field", append(bytes.Clone(bit()[:10]), bytes.Repeat([]byte{1}, 100)...), bitstream.ErrHeader},
		{"field order", bytes.Replace(bit(), []byte("b\x00\x16xczu"), []byte("c\x00\x16xczu"), 1), bitstream.ErrHeader},
		{"length of field e", bytes.Replace(bit(), []byte("12:34:56\x00e\x00\x00\x00"), []byte("12:34:56\x00e\x00\x00\x01"), 1), bitstream.ErrTruncated},
		{"table identification", wrongTable, bitstream.ErrHeader},
		{"number of images", entries, bitstream.ErrHeader},
		{"offset of the image headers", far, bitstream.ErrHeader},
		{"PDI that ends in the boot header", pdi[:0x100], bitstream.ErrTruncated},
		{"PDI that ends before the table", pdi[:0xFF0], bitstream.ErrTruncated},
		{"PDI that ends in a partition", pdi[:len(pdi)-4], bitstream.ErrTruncated},
	} {
		_, err := bitstream.Inspect(bytes.NewReader(c.file))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := bitstream.Inspect(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("read error: %v", err)
	}
}

// What fpga_manager takes is the same whatever the file.
func TestReader(t *testing.T) {
	frames := make([]uint32, 50_000) // several chunks
	for n := range frames {
		frames[n] = uint32(n) * 0x01010101
	}
	c := bitstreamtest.Config{IDCode: zu28, Frames: frames}
	want := c.Data(true)
	for name, file := range map[string][]byte{
		"bit": bitstreamtest.Bit(name, part, c.Data(false)), "big-endian bin": c.Data(false), "swapped bin": want,
		"bit with a tail": append(bitstreamtest.Bit(name, part, c.Data(false)), 1, 2, 3),
	} {
		r, err := bitstream.NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(name, err)
		}
		if err := iotest.TestReader(r, want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	pdi := bitstreamtest.PDI{IDCode: 0x14CA8093}.Bytes()
	if r, err := bitstream.NewReader(bytes.NewReader(pdi)); err != nil || r.Format != bitstream.PDI {
		t.Errorf("%+v, %v", r, err)
	} else if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, pdi) {
		t.Errorf("PDI changed: %v", err)
	}
	for name, file := range map[string][]byte{"bit": bit()[:len(bit())-5], "bin": c.Data(false)[:1001]} {
		r, err := bitstream.NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); !errors.Is(err, bitstream.ErrTruncated) {
			t.Errorf("short %s: %v", name, err)
		}
	}
	if _, err := bitstream.NewReader(strings.NewReader("no bitstream")); !errors.Is(err, bitstream.ErrNoSync) {
		t.Error(err)
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(bit())
	f.Add(bitstreamtest.Config{IDCode: zu28, Compressed: true}.Data(true))
	f.Add(bitstreamtest.Config{Encrypted: true}.Data(false))
	f.Add(bitstreamtest.PDI{IDCode: 0x14CA8093}.Bytes())
	f.Add(bitstreamtest.PDI{IDCode: 0x14CA8093, Partial: true}.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		i, err := bitstream.Inspect(bytes.NewReader(file))
		if _, e := json.Marshal(i); e != nil {
			t.Fatal(e)
		}
		if e := i.Text(io.Discard); e != nil {
			t.Fatal(e)
		}
		if i.Size != int64(len(file)) {
			t.Fatalf("size %d, want %d", i.Size, len(file))
		}
		r, e := bitstream.NewReader(bytes.NewReader(file))
		if e != nil {
			if err == nil {
				t.Fatalf("inspected, but not converted: %v", e)
			}
			return
		}
		if _, e := io.Copy(io.Discard, r); err == nil && e != nil {
			t.Fatalf("inspected, but not read: %v", e)
		}
	})
}
