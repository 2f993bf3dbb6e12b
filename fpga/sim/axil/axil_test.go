//go:build verilator

package axil

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const (
	hold   = 160
	slverr = 2
)

// world is a master that pauses at will and a register bus that answers two
// cycles after the address.
type world struct {
	t      *testing.T
	slave  *Slave
	random *rand.Rand
	p      Pins
	regs   map[uint32]uint32 // behind the bus
	past   [2]uint32         // what the bus answers, oldest first
	writes int               // that reached the bus
	pause  int               // of 256 cycles

	// The access under way on each side, and the answers that must hold.
	awDone, wDone, arDone bool
	bHeld, rHeld          string
}

func newWorld(t *testing.T, seed uint64, pause int) *world {
	w := &world{t: t, slave: New(uint32(seed) + 1), random: rand.New(rand.NewPCG(seed, 0)), regs: map[uint32]uint32{}, pause: pause}
	t.Cleanup(w.slave.Close)
	w.reset()
	return w
}

func (w *world) ready() bool { return w.random.IntN(256) >= w.pause }

// reset holds rst for one cycle and checks that nothing is said in it, nor taken
// or said while the core is still in its own.
func (w *world) reset() {
	w.t.Helper()
	w.p.rst = 1
	w.p.awvalid, w.p.wvalid, w.p.arvalid = 0, 0, 0
	w.step()
	w.quiet("in reset")
	w.p = Pins{awvalid: 1, wvalid: 1, arvalid: 1, bready: 1, rready: 1, wstrb: 15}
	for i := range hold {
		w.step()
		w.quiet(fmt.Sprintf("%d cycles after reset", i+1))
	}
	w.p.awvalid, w.p.wvalid, w.p.arvalid = 0, 0, 0
	w.bHeld, w.rHeld = "", ""
}

func (w *world) quiet(when string) {
	w.t.Helper()
	if w.p.awready|w.p.wready|w.p.arready|w.p.bvalid|w.p.rvalid|w.p.bus_write != 0 {
		w.t.Fatalf("%s: %+v", when, w.p)
	}
}

// step lets a cycle pass on both sides of the slave.
func (w *world) step() {
	w.p.bus_rdata = pin(w.past[0])
	w.slave.Cycle(&w.p)
	address := uint32(w.p.bus_address)
	w.past = [2]uint32{w.past[1], w.regs[address]}
	if w.p.bus_write != 0 {
		w.regs[address] = uint32(w.p.bus_wdata)
		w.writes++
	}
}

// access makes a write, a read or both at once, to the end.
func (w *world) access(write, read *request) {
	w.t.Helper()
	w.awDone, w.wDone, w.arDone = write == nil, write == nil, read == nil
	bDone, rDone := write == nil, read == nil
	w.bHeld, w.rHeld = "", ""
	for cycle := 0; !bDone || !rDone; cycle++ {
		if cycle > 2000 {
			w.t.Fatalf("no answer: write %+v read %+v pins %+v", write, read, w.p)
		}
		// Once valid, always valid until it is taken.
		if !w.awDone {
			w.p.awvalid |= bit(w.ready())
			w.p.awaddr = pin(write.address)
		}
		if !w.wDone {
			w.p.wvalid |= bit(w.ready())
			w.p.wdata, w.p.wstrb = pin(write.value), pin(write.strobe)
		}
		if !w.arDone {
			w.p.arvalid |= bit(w.ready())
			w.p.araddr = pin(read.address)
		}
		w.p.bready, w.p.rready = bit(w.ready()), bit(w.ready())
		w.step()
		if w.p.awvalid&w.p.awready != 0 {
			w.awDone, w.p.awvalid = true, 0
		}
		if w.p.wvalid&w.p.wready != 0 {
			w.wDone, w.p.wvalid = true, 0
		}
		if w.p.arvalid&w.p.arready != 0 {
			w.arDone, w.p.arvalid = true, 0
		}
		hold := func(held *string, valid, ready bool, now string, due bool) bool {
			if *held != "" && (!valid || *held != now) {
				w.t.Fatalf("answer %q became %q", *held, now)
			}
			if valid && !due {
				w.t.Fatalf("answer %q to nothing", now)
			}
			*held = ""
			if valid && !ready {
				*held = now
			}
			return valid && ready
		}
		if hold(&w.bHeld, w.p.bvalid != 0, w.p.bready != 0, fmt.Sprint(w.p.bresp), w.awDone && w.wDone && !bDone) {
			bDone, write.response = true, uint32(w.p.bresp)
		}
		if hold(&w.rHeld, w.p.rvalid != 0, w.p.rready != 0, fmt.Sprint(w.p.rresp, w.p.rdata), w.arDone && !rDone) {
			rDone, read.response, read.value = true, uint32(w.p.rresp), uint32(w.p.rdata)
		}
	}
}

type request struct{ address, value, strobe, response uint32 }

func (r request) refused() bool { return r.address%4 != 0 || r.address > 0xffff || r.strobe != 15 }

func (w *world) request() *request {
	r := &request{address: w.random.Uint32N(8) * 4, value: w.random.Uint32(), strobe: 15}
	switch w.random.IntN(8) {
	case 0:
		r.address += 1 + w.random.Uint32N(3)
	case 1:
		r.address += 0x10000
	case 2:
		r.strobe = w.random.Uint32N(15)
	}
	return r
}

// Accesses with pauses on all five channels do what they say, or are refused
// and do nothing.
func TestAccesses(t *testing.T) {
	for _, pause := range []int{0, 64, 128, 224} {
		t.Run(fmt.Sprint(pause), func(t *testing.T) {
			w := newWorld(t, uint64(pause), pause)
			want, writes, refusals := map[uint32]uint32{}, 0, 0
			for range 3000 {
				write, read := w.request(), w.request()
				read.strobe = 15
				switch w.random.IntN(3) {
				case 0:
					w.access(write, nil)
					read = nil
				case 1:
					w.access(nil, read)
					write = nil
				default: // at once, so never the same register
					if write.address&^3 == read.address&^3 {
						read.address ^= 0x20
					}
					w.access(write, read)
				}
				if write != nil {
					if write.refused() {
						refusals++
						if write.response != slverr {
							t.Fatalf("write %+v was not refused", write)
						}
					} else if want[write.address] = write.value; write.response != 0 {
						t.Fatalf("write %+v", write)
					} else {
						writes++
					}
				}
				if read != nil {
					switch {
					case read.refused() && (read.response != slverr || read.value != 0):
						t.Fatalf("read %+v was not refused", read)
					case !read.refused() && (read.response != 0 || read.value != want[read.address]):
						t.Fatalf("read %+v, want %#x", read, want[read.address])
					}
				}
			}
			if w.writes != writes || refusals == 0 {
				t.Errorf("%d writes on the bus, want %d; %d refused", w.writes, writes, refusals)
			}
		})
	}
}

// A reader does not keep a writer out, nor the other way round.
func TestTurns(t *testing.T) {
	w := newWorld(t, 1, 0)
	w.p.awvalid, w.p.wvalid, w.p.arvalid, w.p.bready, w.p.rready, w.p.wstrb = 1, 1, 1, 1, 1, 15
	var order []byte
	for range 400 {
		w.step()
		if w.p.awready != 0 {
			order = append(order, 'w')
		}
		if w.p.arready != 0 {
			order = append(order, 'r')
		}
	}
	for i := 1; i < len(order); i++ {
		if order[i] == order[i-1] {
			t.Fatalf("access %d: %c follows itself", i, order[i])
		}
	}
	if len(order) < 50 {
		t.Errorf("%d accesses in 400 cycles", len(order))
	}
}

// After a reset at any cycle of an access no answer of before it appears, and
// the next access works.
func TestReset(t *testing.T) {
	for _, kind := range []string{"write", "read"} {
		for at := range 12 {
			w := newWorld(t, uint64(at), 0)
			w.access(&request{address: 4, value: 1, strobe: 15}, nil)
			w.p.awaddr, w.p.araddr, w.p.wdata, w.p.wstrb, w.p.bready, w.p.rready = 8, 8, 99, 15, 0, 0
			if kind == "write" {
				w.p.awvalid, w.p.wvalid = 1, 1
			} else {
				w.p.arvalid = 1
			}
			for range at {
				w.step()
				if w.p.awready != 0 {
					w.p.awvalid, w.p.wvalid = 0, 0
				}
				if w.p.arready != 0 {
					w.p.arvalid = 0
				}
			}
			w.reset()
			write, read := &request{address: 12, value: 7, strobe: 15}, &request{address: 4, strobe: 15}
			w.access(write, nil)
			w.access(nil, read)
			if write.response != 0 || read.response != 0 || read.value != 1 || w.regs[12] != 7 {
				t.Fatalf("%s, reset after %d: write %+v read %+v", kind, at, write, read)
			}
		}
	}
}
