package model

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rocelink/fpga/regs"
)

// desk is a fabric whose modules a test talks to.
type desk struct {
	t   *testing.T
	f   *Fabric
	bus regs.Bus // of the block
	now time.Duration
}

func newDesk(t *testing.T) *desk {
	f, err := New(Config{QueuePairs: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &desk{t: t, f: f, bus: regs.At(f.Bus(), ModulesBase)}
}

func (d *desk) pass(by time.Duration) { d.now += by; d.f.Step(d.now) }

// tx is one transfer; it returns the status.
func (d *desk) tx(address uint16, w []byte, n int) (r []byte, status uint32) {
	d.t.Helper()
	write := func(reg regs.Reg, v uint32) {
		if err := reg.Write(d.bus, v); err != nil {
			d.t.Fatal(err)
		}
	}
	read := func(reg regs.Reg) uint32 {
		v, err := reg.Read(d.bus)
		if err != nil {
			d.t.Fatal(err)
		}
		return v
	}
	for i := 0; i < len(w); i += 4 {
		var v uint32
		for j := i; j < min(i+4, len(w)); j++ {
			v |= uint32(w[j]) << (j % 4 * 8)
		}
		write(regs.ModulesData+regs.Reg(i), v)
	}
	write(regs.ModulesAddress, uint32(address))
	write(regs.ModulesWriteLength, uint32(len(w)))
	write(regs.ModulesReadLength, uint32(n))
	write(regs.ModulesControl, 1)
	if read(regs.ModulesControl) != 0 {
		d.t.Fatal("the command is not done")
	}
	for i := range n {
		r = append(r, byte(read(regs.ModulesData+regs.Reg(i&^3))>>(i%4*8)))
	}
	return r, read(regs.ModulesStatus)
}

// get reads the module's memory through channel 0.
func (d *desk) get(at byte, n int) []byte {
	d.t.Helper()
	d.put(switchAddress, cageChannel)
	r, status := d.tx(moduleAddress, []byte{at}, n)
	if status != 0 {
		d.t.Fatalf("status %#x", status)
	}
	return r
}

func (d *desk) put(address uint16, w ...byte) {
	d.t.Helper()
	if _, status := d.tx(address, w, 0); status != 0 {
		d.t.Fatalf("write % x to %#x: status %#x", w, address, status)
	}
}

func (d *desk) in() uint32 {
	v, err := regs.ModulesIn.Read(d.bus)
	if err != nil {
		d.t.Fatal(err)
	}
	return v
}

func TestModuleMemory(t *testing.T) {
	d := newDesk(t)
	noAnswer := uint32(regs.ModulesStatusCodeNoAcknowledge)
	if _, s := d.tx(moduleAddress, []byte{0}, 1); s != noAnswer {
		t.Errorf("through a closed switch: status %#x", s)
	}
	if _, s := d.tx(0x80, []byte{0}, 1); s != regs.ModulesStatusCodeBadTransfer {
		t.Errorf("address of 8 bits: status %#x", s)
	}
	if id := d.get(0, 3); id[0] != 0x11 || id[2]&4 != 0 {
		t.Errorf("lower page % x", id)
	}
	up := d.get(128, 128)
	if up[checkBase] != sum8(up[:checkBase]) || up[checkExt] != sum8(up[checkBase+1:checkExt]) {
		t.Error("a checksum is wrong")
	}
	d.put(moduleAddress, memPage, 3)
	if v := d.get(128, 2); v[0] != 75 {
		t.Errorf("threshold % x", v)
	}
	d.put(moduleAddress, memPage, 9)
	if v := d.get(memPage, 1); v[0] != 0 {
		t.Errorf("page %d, which is not there, is selected", v[0])
	}
	// The identity does not take what is written; a long write is refused.
	d.put(moduleAddress, 0, 7)
	if v := d.get(0, 1); v[0] != 0x11 {
		t.Errorf("identifier %#x", v[0])
	}
	if _, s := d.tx(moduleAddress, []byte{86, 0, 0, 0, 0, 0}, 0); s != noAnswer|6<<16 {
		t.Errorf("write of 5 bytes: status %#x", s)
	}
	// The half of the memory is not left: byte 128 follows 255.
	if v := d.get(255, 2); v[1] != 0x11 {
		t.Errorf("after byte 255: % x", v)
	}
}

// Flags are latched until they are read, and IntL tells of them.
func TestModuleFlags(t *testing.T) {
	d := newDesk(t)
	d.pass(time.Second)
	d.get(memLOS, memFlagsEnd-memLOS)
	if regs.ModulesInIntL.Get(d.in()) != 1 {
		t.Error("IntL without a flag")
	}
	if err := d.f.Sim("dark", []string{"2"}, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	d.pass(200 * time.Millisecond)
	d.pass(time.Second)
	if regs.ModulesInIntL.Get(d.in()) != 0 {
		t.Error("no IntL with a flag")
	}
	if v := d.get(memLOS, 1); v[0] != 1<<1 {
		t.Errorf("loss of signal %#b", v[0])
	}
	if v := d.get(memLOS, 1); v[0] != 0 {
		t.Errorf("loss of signal %#b after it was read", v[0])
	}
}

// Lines act on the module and the link, and what nobody drives lets it run.
func TestModuleLines(t *testing.T) {
	d := newDesk(t)
	mac := regs.At(d.f.Bus(), CMACBase)
	for _, w := range []struct {
		r regs.Reg
		v uint32
	}{{regs.CMACConfigRx, 1}, {regs.CMACConfigTx, 1}} {
		if err := w.r.Write(mac, w.v); err != nil {
			t.Fatal(err)
		}
	}
	up := func() bool { d.f.mu.Lock(); defer d.f.mu.Unlock(); return d.f.mac.up }
	out := func(v uint32) {
		if err := regs.ModulesOut.Write(d.bus, v); err != nil {
			t.Fatal(err)
		}
		d.pass(time.Millisecond)
	}
	d.pass(time.Millisecond)
	if !up() {
		t.Fatal("not up with lines as they are")
	}
	for _, c := range []struct {
		name string
		out  uint32
	}{{"reset", 0}, {"low power", 3}} {
		out(c.out)
		if up() {
			t.Errorf("%s: the link is up", c.name)
		}
		out(1)
		d.pass(moduleStart)
		if !up() {
			t.Errorf("%s: not up after it", c.name)
		}
	}
	// The register overrides LPMode; lasers off blind the peer.
	out(3)
	d.put(switchAddress, cageChannel)
	d.put(moduleAddress, memPower, powerOverride)
	if d.pass(time.Millisecond); !up() {
		t.Error("not up though software overrides LPMode")
	}
	d.put(moduleAddress, memTxDisable, 0x4)
	if d.pass(time.Millisecond); up() {
		t.Error("up with a laser off")
	}
	out(1 | regs.ModulesOutModSelL.Mask())
	if _, s := d.tx(moduleAddress, []byte{0}, 1); s != regs.ModulesStatusCodeNoAcknowledge {
		t.Errorf("not selected: status %#x", s)
	}
}

func TestSimAgenda(t *testing.T) {
	d := newDesk(t)
	if err := d.f.SimScript([]SimStep{
		{After: time.Second, Do: "unplug", For: 2 * time.Second}, {After: time.Second, Do: "dark", Args: []string{"1", "4"}}, {After: 3 * time.Second, Do: "light", Args: []string{"1"}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   time.Duration
		want string
	}{
		{0, "[] 3"}, {time.Second, "[{unplug 0 2s}] 2"}, {2500 * time.Millisecond, "[{dark 1 0s} {dark 4 0s} {unplug 0 500ms}] 1"},
		{3 * time.Second, "[{dark 1 0s} {dark 4 0s}] 1"}, {5 * time.Second, "[{dark 4 0s}] 0"},
	} {
		// A driver that sleeps until it is told to is in time.
		for d.now < c.at {
			next := d.f.Step(d.now)
			if next <= d.now {
				next = d.now + time.Microsecond
			}
			d.now = min(next, c.at)
		}
		d.f.Step(d.now)
		active, waiting := d.f.SimState()
		if got := fmt.Sprint(active, waiting); got != c.want {
			t.Errorf("at %v: %s, want %s", c.at, got, c.want)
		}
	}
	if err := d.f.SimScript([]SimStep{{After: time.Hour, Do: "hot"}}); err != nil {
		t.Fatal(err)
	}
	if err := d.f.Sim("clear", nil, 0); err != nil {
		t.Fatal(err)
	}
	if active, waiting := d.f.SimState(); len(active) > 0 || waiting > 0 {
		t.Errorf("after clear: %v, %d", active, waiting)
	}
}

func TestSimRefuses(t *testing.T) {
	d := newDesk(t)
	for _, s := range []SimStep{
		{Do: ""}, {Do: "nonsense"}, {Do: "dark", Args: []string{"0"}}, {Do: "dark", Args: []string{"5"}}, {Do: "dark", Args: []string{"x"}},
		{Do: "hot", Args: []string{"1"}}, {Do: "clear", For: 1}, {Do: "plug", For: 1}, {Do: "hot", For: -1}, {Do: "hot", After: -1},
		{Do: "dark", Args: []string{"1", "2", "3", "4", "1"}}, {Do: "hot", After: Never},
	} {
		if err := d.f.SimScript([]SimStep{{Do: "hot"}, s}); !errors.Is(err, ErrSim) {
			t.Errorf("%+v: %v", s, err)
		}
		if active, waiting := d.f.SimState(); len(active) > 0 || waiting > 0 {
			t.Fatalf("%+v: half of a script is taken", s)
		}
	}
}

func TestSimSocket(t *testing.T) {
	d := newDesk(t)
	path := filepath.Join(t.TempDir(), "s")
	s, err := ServeSim(d.f, path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := ServeSim(d.f, path); !errors.Is(err, ErrServedSocket) {
		t.Errorf("a second server: %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for _, x := range []struct{ line, want string }{
		{`{"do":"dark","args":["3"],"for_ms":1000}`, `"active":[{"name":"dark","lane":3,"left_ms":1000}]`},
		{`{"script":[{"after_ms":5,"do":"hot"}]}`, `"waiting":1`},
		{`{}`, `"faults":[{"name":"unplug"`},
		{`{"do":"no"}`, `no such fault`}, {`{"do":"hot","for_ms":-1}`, `"error"`}, {`{"do":"hot","script":[]}`, `"error"`},
		{`[`, `"error"`}, {`{"script":[{"do":"hot","after_ms":9000000000000000000}]}`, `"error"`}, {`{"do":"clear"}`, `"active":[],"waiting":0`},
	} {
		fmt.Fprintln(c, x.line)
		got, err := in.ReadString('\n')
		if err != nil || !strings.Contains(got, x.want) || !json.Valid([]byte(got)) {
			t.Errorf("%s: %s, %v", x.line, got, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// Whatever is written to the block, and asked of the socket, does no harm.
func FuzzModules(f *testing.F) {
	f.Add(uint64(1), []byte(`{"do":"dark"}`))
	f.Add(uint64(2), []byte(`{"script":[{"do":"unplug","for_ms":3}]}`))
	f.Fuzz(func(t *testing.T, seed uint64, line []byte) {
		d := newDesk(t)
		r := rand.New(rand.NewPCG(seed, 1))
		if _, err := json.Marshal(answer(d.f, line)); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			o := []regs.Reg{regs.ModulesControl, regs.ModulesAddress, regs.ModulesWriteLength, regs.ModulesReadLength, regs.ModulesOut, regs.ModulesData + regs.Reg(r.IntN(64)*4)}[r.IntN(6)]
			if err := o.Write(d.bus, r.Uint32()>>r.IntN(32)); err != nil {
				t.Fatal(err)
			}
			d.pass(time.Duration(r.IntN(1e9)))
			answer(d.f, line)
		}
	})
}
