package rocecore

import (
	"errors"
	"fmt"
	"time"

	"rocelink/firmware/poll"
	"rocelink/fpga/regs"
)

// Errors of the driver.
var (
	// ErrNoFabric: nothing answers at the address, or what answers does not
	// hold what is written to it.
	ErrNoFabric = errors.New("fabric missing")
	// ErrIncompatible: the fabric speaks a register layout this driver does
	// not know, or contradicts itself.
	ErrIncompatible = errors.New("fabric incompatible")
	// ErrRestarted: the fabric was restarted or reset by someone else; all
	// queue pairs are gone.
	ErrRestarted = errors.New("fabric restarted")
	// ErrTimeout: a command did not end in time.
	ErrTimeout = poll.ErrTimeout
	// ErrRefused: the fabric refused a command.
	ErrRefused = errors.New("command refused")
	// ErrState: the fabric refused a command in the present state. It comes
	// with ErrRefused.
	ErrState = errors.New("not allowed in this state")
	// ErrSetting: a setting is out of range; nothing was written.
	ErrSetting = errors.New("setting out of range")
	// ErrUnsupported: this fabric cannot do that.
	ErrUnsupported = errors.New("not supported by this fabric")
)

// SettingError is a setting that the driver refused before it wrote any
// register. It matches ErrSetting.
type SettingError struct {
	Setting string // name of the setting
	Value   string // the refused value
	Want    string // what would be accepted
}

// Error names the setting, its value and what is accepted.
func (e *SettingError) Error() string {
	return fmt.Sprintf("%s %s: want %s", e.Setting, e.Value, e.Want)
}

// Is reports ErrSetting.
func (e *SettingError) Is(target error) bool { return target == ErrSetting }

func setting(name string, value any, want string, args ...any) error {
	return &SettingError{name, fmt.Sprint(value), fmt.Sprintf(want, args...)}
}

// CommandError is a command that the fabric refused or did not end.
type CommandError struct {
	Block   string // of the register table
	Command string
	Index   int
	After   time.Duration // how long it was waited for
	// Register is the refused register by its name in the table, if the fabric
	// refused a value; State the present state if it refused that.
	Register, State string
	Err             error
}

// Error names the command, the queue pair, the cause and what to do.
func (e *CommandError) Error() string {
	s := fmt.Sprintf("%s command %s, queue pair %d", e.Block, e.Command, e.Index)
	switch {
	case errors.Is(e.Err, ErrTimeout):
		s += ": the fabric does not end it: reload the bitstream or restart the software fabric"
	case e.Register != "":
		s += ": register " + e.Register + " refused"
	case e.State != "":
		s += ": not in state " + e.State
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

// block returns a block of the register table.
func block(name string) regs.Block {
	for _, b := range regs.Blocks() {
		if b.Name == name {
			return b
		}
	}
	panic("rocecore: the register table has no block " + name)
}

// registerName is the name in the table of the register at an offset.
func registerName(blockName string, offset uint32) string {
	for _, r := range block(blockName).Regs {
		if offset >= r.Offset && offset < r.Offset+4*uint32(r.Words()) {
			return blockName + "." + r.Name
		}
	}
	return fmt.Sprintf("%s offset %#x", blockName, offset)
}

// valueName is the name in the table of a value of a field, or its number.
func valueName(blockName, register, field string, value uint32) string {
	if r, ok := block(blockName).Lookup(register); ok {
		for _, f := range r.Fields {
			if f.Name != field {
				continue
			}
			for _, v := range f.Values {
				if v.Value == value {
					return v.Name
				}
			}
		}
	}
	return fmt.Sprint(value)
}
