package verbs

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestPlaceCopiesEveryAlignment(t *testing.T) {
	m, err := AllocMemory(256, false)
	if err != nil {
		t.Skip(err)
	}
	defer m.Free()
	b := m.Bytes()
	src := make([]byte, 64)
	for i := range src {
		src[i] = byte(i + 1)
	}
	for at := range 17 {
		for n := range 41 {
			clear(b)
			Place(b[at:128], src[:n])
			if !bytes.Equal(b[at:at+n], src[:n]) {
				t.Fatalf("offset %d, %d bytes: got % x", at, n, b[at:at+n])
			}
			if i := bytes.IndexFunc(b[:at], func(r rune) bool { return r != 0 }); i >= 0 {
				t.Fatalf("offset %d, %d bytes: byte %d before it changed", at, n, i)
			}
			if !bytes.Equal(b[at+n:], make([]byte, len(b)-at-n)) {
				t.Fatalf("offset %d, %d bytes: bytes behind it changed", at, n)
			}
		}
	}
}

// A reader that sees the last word of a frame must see the whole frame.
func TestPlaceStoresTheLastWordLast(t *testing.T) {
	const frame = 4096
	m, err := AllocMemory(frame, false)
	if err != nil {
		t.Skip(err)
	}
	defer m.Free()
	b := m.Bytes()
	last := (*uint64)(unsafe.Pointer(&b[frame-8]))
	done := make(chan struct{})
	var taken atomic.Uint64
	const rounds = 5_000
	go func() {
		defer close(done)
		src := make([]byte, frame)
		for n := uint64(1); n <= rounds; n++ {
			for i := 0; i < frame; i += 8 {
				binary.NativeEndian.PutUint64(src[i:], n)
			}
			for taken.Load() != n-1 {
				runtime.Gosched()
			}
			Place(b, src)
		}
	}()
	for n := uint64(1); n <= rounds; n++ {
		for atomic.LoadUint64(last) != n {
			runtime.Gosched()
		}
		for i := 0; i < frame; i += 8 {
			if got := binary.NativeEndian.Uint64(b[i:]); got != n {
				t.Errorf("frame %d: word %d is still of frame %d", n, i/8, got)
			}
		}
		taken.Store(n)
	}
	<-done
}

func TestPlaceRefusesAShortDestination(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Place(make([]byte, 4, 16)[:4:4], make([]byte, 8))
}
