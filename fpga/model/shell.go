package model

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"rocelink/fpga/regs"
)

// shell is what surrounds a core: the memory of all registers, the Ethernet
// MAC, and a module in its cage, with the faults that can be provoked there.
type shell struct {
	mu  sync.Mutex
	now time.Duration

	mem    aperture
	core   block
	stream block
	mac    cmac
	cage   modules
	sim    simulation
	base   Link // the Ethernet link but for what was provoked

	commanded time.Duration // when the last command came
}

// init puts the shell into a memory, which is allocated if it is nil.
func (s *shell) init(registers []uint32, link Link) error {
	if registers == nil {
		registers = make([]uint32, ApertureBytes/4)
	}
	if len(registers) != ApertureBytes/4 {
		return fmt.Errorf("fabric: register memory of %d words: give %d", len(registers), ApertureBytes/4)
	}
	s.mem = registers
	s.core, s.stream = block{s.mem, CoreBase}, block{s.mem, StreamBase}
	s.mac = newCMAC(block{s.mem, CMACBase}, link)
	s.cage = newModules(block{s.mem, ModulesBase})
	s.base = link
	return nil
}

// reset clears the memory, identities first, and starts MAC and cage.
func (s *shell) reset() {
	s.core.set(regs.CoreIdent, 0)
	s.stream.set(regs.StreamIdent, 0)
	for i := range s.mem {
		s.mem.store(uint32(i)*4, 0)
	}
	s.mac.reset(table("CMAC"))
	s.mac.set(regs.CMACGTReset, 0)
	s.cage.start()
	s.poll()
}

// present says that all blocks are there. The identity of the core comes last: a
// driver that sees it sees the rest.
func (s *shell) present() {
	s.cage.set(regs.ModulesIdent, regs.IdentModules)
	s.stream.set(regs.StreamIdent, regs.IdentStream)
	s.core.set(regs.CoreIdent, regs.IdentCore)
}

// gone says that there is nothing any more.
func (s *shell) gone() {
	s.core.set(regs.CoreIdent, 0)
	s.cage.set(regs.ModulesIdent, 0)
	s.stream.set(regs.StreamIdent, 0)
}

// poll acts on what software wrote to MAC and cage, and on time.
func (s *shell) poll() {
	s.sim.poll(s.now)
	light := s.sim.provoked.light(s.base)
	if s.cage.poll(s.now, light, &s.sim.provoked) {
		s.commanded = s.now
	}
	s.mac.link = s.cage.link(s.now, light, &s.sim.provoked)
	s.mac.poll(s.now)
}

// deadline is when poll has something to do.
func (s *shell) deadline() time.Duration {
	return min(s.mac.deadline, s.cage.deadline, s.sim.deadline)
}

// SetLink changes the Ethernet link: the fibre, the peer.
func (s *shell) SetLink(l Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = l
	s.poll()
}

// Local returns the fabric's own address and whether the core is enabled, from
// the registers as they are.
func (s *shell) Local() (addr netip.Addr, enabled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.localIP(), regs.CoreControlEnable.Get(s.core.get(regs.CoreControl)) != 0
}

// LastCommand is when a command came last.
func (s *shell) LastCommand() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commanded
}

func (s *shell) localIP() netip.Addr { return s.address(regs.CoreLocalIP0) }

// address reads the four registers of an address that begin at r.
func (s *shell) address(r regs.Reg) netip.Addr {
	var b [16]byte
	for i := range uint32(4) {
		binary.BigEndian.PutUint32(b[4*i:], s.core.get(r+regs.Reg(4*i)))
	}
	return netip.AddrFrom16(b).Unmap()
}

// Shell is the surroundings of a core that is not of this package, in the
// memory that software maps: the blocks CMAC and Modules live by themselves, the
// words of Core and Stream are the core's. Its methods may be called by several
// goroutines.
type Shell struct{ shell }

// NewShell returns a shell whose MAC and cage are there and whose core is not,
// see [Shell.Present]. Nil registers are allocated.
func NewShell(registers []uint32, link Link) (*Shell, error) {
	var s Shell
	if err := s.init(registers, link); err != nil {
		return nil, err
	}
	s.reset()
	return &s, nil
}

// Present tells software that the core is there: its registers are filled in.
func (s *Shell) Present() { s.present() }

// Close tells software that the core is gone.
func (s *Shell) Close() { s.gone() }

// Load reads a word as software left it.
func (s *Shell) Load(offset uint32) uint32 { return s.mem.load(offset) }

// Store shows software a word.
func (s *Shell) Store(offset, v uint32) { s.mem.store(offset, v) }

// Read32 reads a word as software that maps the memory does, without the side
// effects of a [Bus]. With Write32 it makes the memory a [regs.Bus].
func (s *Shell) Read32(offset uint32) (uint32, error) {
	if offset%4 != 0 || offset >= ApertureBytes {
		return 0, fmt.Errorf("read register %#x: %w", offset, ErrBus)
	}
	return s.Load(offset), nil
}

// Write32 writes a word, on which the fabric acts some time.
func (s *Shell) Write32(offset, v uint32) error {
	if offset%4 != 0 || offset >= ApertureBytes {
		return fmt.Errorf("write register %#x: %w", offset, ErrBus)
	}
	s.Store(offset, v)
	return nil
}

// Poll does what is due in MAC and cage, and returns when it must be called next.
func (s *Shell) Poll(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = max(s.now, now)
	s.poll()
	return s.deadline()
}

// Commanded says that the core had a command at the time of the last Poll.
func (s *Shell) Commanded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commanded = s.now
}

// TxUp reports whether the MAC sends frames.
func (s *Shell) TxUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mac.txUp()
}

// Sent counts a frame of n bytes, without pad and FCS, that the MAC sent.
func (s *Shell) Sent(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mac.sent(n)
}

// Received counts a frame of n bytes that arrives and reports whether the MAC
// lets it through.
func (s *Shell) Received(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mac.received(n)
}
