//go:build linux && cgo && ibverbs

// Command guest-request is a requester on an RDMA device of a lab guest: the
// kernel's own sender for our responders. It posts what package session says,
// fills what it sends with the generator's frames and checks what it reads.
//
// A line of its own comes first, without a request: Opened, for the peer.
package main

/*
#cgo LDFLAGS: -libverbs
#include <infiniband/verbs.h>
#include "requester.h"
*/
import "C"

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"rocelink"
	"rocelink/agent/lab/session"
	"rocelink/agent/verbs"
	"rocelink/fpga/pattern"
	"rocelink/fpga/roce"
)

// maxDepth bounds Work.Depth.
const maxDepth = 64

var opcodes = map[rocelink.Verb]C.int{
	rocelink.VerbSend:     C.IBV_WR_SEND,
	rocelink.VerbSendImm:  C.IBV_WR_SEND_WITH_IMM,
	rocelink.VerbWrite:    C.IBV_WR_RDMA_WRITE,
	rocelink.VerbWriteImm: C.IBV_WR_RDMA_WRITE_WITH_IMM,
	rocelink.VerbRead:     C.IBV_WR_RDMA_READ,
}

// settings are the retry codes of the queue pair.
type settings struct{ timeout, retries, rnrRetries int }

func main() {
	device := flag.String("device", "", "RDMA device")
	memory := flag.Int("memory", 4<<20, "bytes for the messages under way")
	var s settings
	flag.IntVar(&s.timeout, "timeout", 14, "local ACK timeout, 4.096 µs·2^n")
	flag.IntVar(&s.retries, "retries", 7, "retries without an answer")
	flag.IntVar(&s.rnrRetries, "rnr-retries", 7, "retries after receiver not ready, 7 for ever")
	flag.Parse()
	if err := run(*device, *memory, s, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guest-request:", err)
		os.Exit(1)
	}
}

// requester is the queue pair and the memory of its messages.
type requester struct {
	c      *C.struct_requester
	memory *verbs.Memory
	psn    roce.PSN
	settings
}

func errno(code C.int) error {
	if code >= 0 {
		return nil
	}
	return syscall.Errno(-code)
}

func run(device string, size int, s settings, in io.Reader, out io.Writer) error {
	memory, err := verbs.AllocMemory(size, false)
	if err != nil {
		return err
	}
	r := &requester{memory: memory, psn: roce.PSN(rand.Uint32N(roce.PSNMask + 1)), settings: s}
	name := C.CString(device)
	var info C.struct_requester_info
	if err := errno(C.requester_open(name, unsafe.Pointer(&memory.Bytes()[0]), C.uint64_t(size), maxDepth, &r.c, &info)); err != nil {
		return fmt.Errorf("open %s: %w", device, err)
	}
	defer C.requester_close(r.c)
	mtu, err := roce.MTUFromCode(uint8(info.mtu))
	if err != nil {
		return err
	}
	replies := json.NewEncoder(out)
	gid := C.GoBytes(unsafe.Pointer(&info.gid), 16)
	if err := replies.Encode(session.Reply{Opened: &session.Opened{QPN: roce.QPN(info.qpn), PSN: r.psn,
		IP: netip.AddrFrom16([16]byte(gid)).Unmap(), MTU: mtu}}); err != nil {
		return err
	}
	requests := json.NewDecoder(bufio.NewReader(in))
	for {
		var q session.Request
		if err := requests.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		var reply session.Reply
		switch {
		case q.Peer != nil:
			reply.Ready = true
			err = r.connect(*q.Peer)
		case q.Work != nil:
			reply.Done, err = r.work(*q.Work)
		default:
			err = errors.New("request for something else")
		}
		if err != nil {
			reply = session.Reply{Error: err.Error()}
		}
		if err := replies.Encode(reply); err != nil {
			return err
		}
	}
}

func (r *requester) connect(p session.Peer) error {
	c := C.struct_requester_peer{qpn: C.uint32_t(p.QPN), rq_psn: C.uint32_t(p.PSN), sq_psn: C.uint32_t(r.psn),
		mtu: C.int(p.MTU.Code()), timeout: C.int(r.timeout), retries: C.int(r.retries), rnr_retries: C.int(r.rnrRetries)}
	for i, b := range p.IP.As16() {
		c.gid[i] = C.uint8_t(b)
	}
	if err := errno(C.requester_connect(r.c, &c)); err != nil {
		return fmt.Errorf("connect to QPN %#x: %w", p.QPN, err)
	}
	return nil
}

// work posts requests, Depth at a time, and waits for all of them.
func (r *requester) work(w session.Work) (*session.Done, error) {
	opcode, ok := opcodes[w.Verb]
	if !ok {
		return nil, fmt.Errorf("verb %q", w.Verb)
	}
	if w.Depth < 1 || w.Depth > maxDepth/2 || w.Slots < 1 {
		return nil, fmt.Errorf("depth %d of 1 to %d, %d slots", w.Depth, maxDepth/2, w.Slots)
	}
	// Messages start on a cache line of their own, trailers are in the one
	// behind.
	stride := (uint64(w.Bytes)+63)&^63 + 64
	if uint64(w.Depth)*stride > uint64(len(r.memory.Bytes())) {
		return nil, fmt.Errorf("%d messages of %d bytes: more than the memory", w.Depth, w.Bytes)
	}
	buffer := func(n uint32) (frame, trailer []byte) {
		b := r.memory.Bytes()[uint64(n)%uint64(w.Depth)*stride:]
		return b[:w.Bytes], b[stride-64:][:rocelink.TrailerBytes]
	}
	post := func(id uint64, b []byte, remote uint64, seq uint32) error {
		return errno(C.requester_post(r.c, C.uint64_t(id), opcode, unsafe.Pointer(unsafe.SliceData(b)), C.uint32_t(len(b)),
			C.uint64_t(remote), C.uint32_t(w.RKey), C.uint32_t(seq)))
	}
	d := &session.Done{Bad: -1}
	began := time.Now()
	// A message ends with its last request; the one before it has more to come.
	const more = 1 << 63
	var posted, ended uint32
	open := 0 // requests without a completion
	for open > 0 || posted < w.Count && d.Status == 0 {
		for posted < w.Count && posted-ended < uint32(w.Depth) && d.Status == 0 {
			seq := w.Sequence + posted
			slot := w.Address + uint64(seq%w.Slots)*uint64(w.Stride)
			id := uint64(posted)
			frame, trailer := buffer(posted)
			if w.Verb == rocelink.VerbRead {
				clear(frame)
			} else {
				pattern.Fill(frame, w.Pattern, uint64(seq))
			}
			if w.Trailer {
				if err := post(id|more, frame, slot, seq); err != nil {
					return nil, fmt.Errorf("post frame %d: %w", posted, err)
				}
				open++
				binary.LittleEndian.PutUint64(trailer, uint64(w.Bytes))
				binary.LittleEndian.PutUint64(trailer[8:], uint64(seq)+1)
				frame, slot = trailer, slot+uint64(w.Stride)-rocelink.TrailerBytes
			}
			if err := post(id, frame, slot, seq); err != nil {
				return nil, fmt.Errorf("post request %d: %w", posted, err)
			}
			open++
			posted++
		}
		id, status, ok, err := r.poll()
		if err != nil {
			return nil, err
		}
		if !ok {
			runtime.Gosched()
			continue
		}
		open--
		if status != 0 && d.Status == 0 {
			d.Status, d.StatusText = status, C.GoString(C.requester_status(C.int(status)))
		}
		if id&more != 0 {
			continue
		}
		ended++
		if status != 0 {
			continue
		}
		d.Completed++
		if w.Verb == rocelink.VerbRead && d.Bad < 0 {
			// Slot i of the ring holds frame i.
			frame, _ := buffer(uint32(id))
			if pattern.Check(frame, w.Pattern, uint64((w.Sequence+uint32(id))%w.Slots)) >= 0 {
				d.Bad = int64(id)
			}
		}
	}
	d.Nanoseconds = time.Since(began).Nanoseconds()
	return d, nil
}

// poll returns a completion if there is one.
func (r *requester) poll() (id uint64, status int, ok bool, err error) {
	var i C.uint64_t
	var s C.int
	n := C.requester_poll(r.c, &i, &s)
	if err := errno(n); err != nil {
		return 0, 0, false, fmt.Errorf("poll: %w", err)
	}
	return uint64(i), int(s), n == 1, nil
}
