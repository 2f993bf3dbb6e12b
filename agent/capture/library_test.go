package capture

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

// What the gate and binaryTime are for: the library without them. Where this
// fails after an update of the library, that part of them may go.
func TestLibraryAlone(t *testing.T) {
	le := binary.LittleEndian
	frame := threeFrames(t)[0]
	head := append(ngSection(le), ngInterface(le, linkEthernet, 0x80|29, 0)...)
	good := ngPacket(le, frame, 1<<28) // half a second
	open := func(t *testing.T, blocks ...[]byte) *pcapgo.NgReader {
		file := append(bytes.Clone(head), bytes.Join(blocks, nil)...)
		r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{WantMixedLinkType: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("binary resolution", func(t *testing.T) {
		_, info, err := open(t, good).ReadPacketData()
		if err != nil || info.Timestamp.Equal(time.Unix(0, 5e8)) {
			t.Errorf("%v, %v: half a second is right now", info.Timestamp, err)
		}
		if at := binaryTime(1<<28, pcapgo.NgInterface{TimestampResolution: 0x80 | 29}); !at.Equal(time.Unix(0, 5e8)) {
			t.Errorf("binaryTime: %v", at)
		}
	})
	t.Run("packet longer than its block", func(t *testing.T) {
		long := bytes.Clone(good)
		le.PutUint32(long[20:], uint32(len(long)+len(good)/2))
		data, _, err := open(t, long, good, good, good).ReadPacketData()
		if err != io.ErrUnexpectedEOF || !bytes.Contains(data, good[:8]) {
			t.Errorf("%d bytes, %v: it does not take the next block for packet data now", len(data), err)
		}
	})
	t.Run("lengths of a block differ", func(t *testing.T) {
		wrong := bytes.Clone(good)
		le.PutUint32(wrong[len(wrong)-4:], 8)
		if _, _, err := open(t, wrong).ReadPacketData(); err != nil {
			t.Errorf("it looks at both lengths now: %v", err)
		}
	})
	t.Run("name records", func(t *testing.T) {
		record := append([]byte{1, 0, 8, 0, 192, 0, 2, 1}, "abc\x00"...)
		names := ngBlock(le, 4, append(bytes.Repeat(record, 1000), 0, 0, 0, 0))
		r := open(t, bytes.Repeat(names, 100), good)
		if _, _, err := r.ReadPacketData(); err != nil || r.NNames() != 100_000 {
			t.Errorf("%d of 100000 are kept now, %v", r.NNames(), err)
		}
	})
	t.Run("comments of a packet", func(t *testing.T) {
		body := append(bytes.Clone(good[8:len(good)-24]), bytes.Repeat(option(le, 1, []byte("abcd")), 1<<20)...)
		_, _, o, err := open(t, ngBlock(le, blockEnhanced, body)).ZeroCopyReadPacketDataWithOptions()
		if err != nil || len(o.Comments) != 1<<20 {
			t.Errorf("%d of %d are kept now, %v", len(o.Comments), 1<<20, err)
		}
	})
}

// A snap length of 4 GiB lets the library take a record of any length.
func TestLibrarySnapLength(t *testing.T) {
	file := pcap(linkEthernet, taken{data: make([]byte, 4*maxCaptured)})
	binary.LittleEndian.PutUint32(file[16:], 0xffffffff)
	r, err := pcapgo.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.ReadPacketData(); err != nil {
		t.Errorf("it has a limit now: %v", err)
	}
	if _, _, err := decodeJSON(t, file); err == nil {
		t.Error("no error")
	}
}
