//go:build verilator && realtime

package fabric

import (
	"fmt"

	"rocelink/fpga/model"
	"rocelink/fpga/regs"
	"rocelink/fpga/sim/core"
)

// mirror keeps the words of Core and Stream alike in the memory that software
// maps and in the core. Memory has no events, so what software wrote is looked
// for; what the core shows only changes by a command.
type mirror struct {
	core       *core.Core
	shell      *model.Shell
	sourcePort uint16

	settings []setting // that software writes
	shown    []uint32  // offsets of what the core says, without the identities
	issued   map[uint32]uint32
}

// setting is a word that software writes, as the core has it.
type setting struct{ offset, value uint32 }

func newMirror(c *core.Core, s *model.Shell, sourcePort uint16) mirror {
	m := mirror{core: c, shell: s, sourcePort: sourcePort, issued: map[uint32]uint32{}}
	for _, t := range regs.Blocks() {
		base, ours := map[string]uint32{"Core": model.CoreBase, "Stream": model.StreamBase}[t.Name]
		if !ours {
			continue
		}
		for _, r := range t.Regs {
			for w := range uint32(r.Words()) {
				o := base + r.Offset + 4*w
				switch {
				case r.Access == regs.RW:
					m.settings = append(m.settings, setting{offset: o})
				case r.Access != regs.SC && r.Offset != uint32(regs.CoreIdent):
					m.shown = append(m.shown, o)
				}
			}
		}
	}
	return m
}

// fill shows software a core after its reset.
func (m *mirror) fill() error {
	for base, want := range map[uint32]uint32{model.CoreBase: regs.IdentCore, model.StreamBase: regs.IdentStream} {
		if got := m.read(base + uint32(regs.CoreIdent)); got != want {
			return fmt.Errorf("the block at %#x says it is %#x, want %#x: the core and the register table are not of one version, run fpga/sim/verilate", base, got, want)
		}
	}
	for i := range m.settings {
		s := &m.settings[i]
		s.value = m.read(s.offset)
		m.shell.Store(s.offset, s.value)
	}
	m.show()
	return nil
}

// read is of an offset of the register table, which the core never refuses.
func (m *mirror) read(offset uint32) uint32 {
	v, err := m.core.Read32(offset)
	if err != nil {
		panic(err)
	}
	return v
}

func (m *mirror) put(offset, v uint32) {
	if err := m.core.Write32(offset, v); err != nil {
		panic(err)
	}
}

// show shows what the core says.
func (m *mirror) show() {
	for _, o := range m.shown {
		m.shell.Store(o, m.read(o))
	}
}

// write takes over what software wrote.
func (m *mirror) write() {
	for i := range m.settings {
		s := &m.settings[i]
		v := m.shell.Load(s.offset)
		if v == s.value {
			continue
		}
		s.value = v
		if s.offset == uint32(regs.CoreQpSourcePort) && m.sourcePort != 0 && v > 0 && v <= 0xFFFF {
			v = uint32(m.sourcePort)
		}
		m.put(s.offset, v)
	}
}

// command carries out the command of a block, if there is one, for some cycles
// at most. It returns the command's word, 0 if there is none, and how it ended.
func (m *mirror) command(block uint32, cycles int) (word, code uint32, ended bool) {
	// The layout of this part is the same in both blocks.
	const piece = 16
	at := block + uint32(regs.CoreCommand)
	if word = m.issued[block]; word == 0 {
		if word = m.shell.Load(at); word == 0 {
			return 0, 0, false
		}
		m.write() // what came before the command
		m.put(at, word)
		m.issued[block] = word
	}
	for end := m.core.Cycle() + uint64(cycles); m.read(at) != 0; m.core.Run(piece) {
		if m.core.Cycle() >= end {
			return word, 0, false
		}
	}
	delete(m.issued, block)
	status := m.read(block + uint32(regs.CoreCommandStatus))
	if op := regs.CoreCommandOp.Get(word); op == latch(block) {
		m.show()
	} else {
		for _, r := range []regs.Reg{regs.CoreCommandStatus, regs.CoreCommandDetail, regs.CoreCommandCount} {
			m.shell.Store(block+uint32(r), m.read(block+uint32(r)))
		}
	}
	m.shell.Store(at, 0)
	return word, regs.CoreCommandStatusCode.Get(status), true
}

func latch(block uint32) uint32 {
	if block == model.StreamBase {
		return regs.StreamCommandOpLatch
	}
	return regs.CoreCommandOpLatch
}
