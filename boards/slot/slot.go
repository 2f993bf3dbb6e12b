// Package slot is which of two boot images a board starts: the files of the card,
// what boot loader and board tell each other through them, and how a new image
// proves where it comes from. The boot loader's half is a script (package images).
//
// Two small files of one sector each hold the state. Each is written in place, so
// that the file system does not change, and says everything twice, so that one
// torn by a loss of power is not taken for a state.
package slot

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The slots.
const (
	A = "a"
	B = "b"
)

// Files of the card.
const (
	StateFile = "slot.env"  // written by the board, read by the boot loader
	StateCopy = "slot2.env" // the same, written after it
	TriesFile = "tries.env" // written by the boot loader before each trial
	// FileBytes is the size of each: a card writes a sector whole or not at all,
	// as a rule.
	FileBytes = 512
)

// Limit is how often the boot loader tries a new image that does not report in.
const Limit = 3

// None stands for no slot on trial.
const None = "none"

// Variables of the files. U-Boot imports them into its environment.
const (
	VarSlot       = "rl_slot"
	VarTrial      = "rl_trial"
	VarSerial     = "rl_serial"
	VarCheck      = "rl_check"
	VarTries      = "rl_tries"
	VarTriesCheck = "rl_tries_check"
)

// ErrState means that a file does not hold a state: it was torn, or is not one.
var ErrState = errors.New("not a state of the slots")

// Image is the file of a slot's image; New is where it lies until it is whole.
func Image(slot string) string { return "image-" + slot + ".itb" }

// New is the file of an image that is not whole yet.
func New(slot string) string { return "image-" + slot + ".new" }

// Valid reports whether s is a slot.
func Valid(s string) bool { return s == A || s == B }

// Other is the slot beside s.
func Other(s string) string {
	if s == A {
		return B
	}
	return A
}

// State is which image the boot loader starts.
type State struct {
	Slot  string // of the image that is known to work
	Trial string // of the image to try; "" when there is none
	// Serial is that of the trial: tries of another one do not count.
	Serial uint32
}

// Tries is how often the boot loader has tried an image.
type Tries struct {
	Serial, Count uint32
}

// Encode is the file of a state.
func (s State) Encode() []byte {
	trial := s.Trial
	if trial == "" {
		trial = None
	}
	return file(VarSlot, s.Slot, VarTrial, trial, VarSerial, itoa(s.Serial), VarCheck, s.Slot+"."+trial+"."+itoa(s.Serial))
}

// DecodeState reads a state. The error matches ErrState.
func DecodeState(data []byte) (State, error) {
	v := variables(data)
	serial, err := strconv.ParseUint(v[VarSerial], 10, 32)
	s := State{Slot: v[VarSlot], Trial: v[VarTrial], Serial: uint32(serial)}
	if err != nil || !Valid(s.Slot) || !Valid(s.Trial) && s.Trial != None || s.Trial == s.Slot ||
		v[VarCheck] != s.Slot+"."+s.Trial+"."+v[VarSerial] {
		return State{}, fmt.Errorf("%.80q: %w", bytes.TrimRight(data[:min(len(data), 80)], "\n\x00"), ErrState)
	}
	if s.Trial == None {
		s.Trial = ""
	}
	return s, nil
}

// Encode is the file of tries.
func (t Tries) Encode() []byte {
	return file(VarTries, itoa(t.Count), VarTriesCheck, itoa(t.Count)+"."+itoa(t.Serial))
}

// DecodeTries reads tries. The error matches ErrState.
func DecodeTries(data []byte) (Tries, error) {
	v := variables(data)
	count, err := strconv.ParseUint(v[VarTries], 10, 32)
	check, serial, _ := strings.Cut(v[VarTriesCheck], ".")
	n, bad := strconv.ParseUint(serial, 10, 32)
	if err != nil || bad != nil || check != v[VarTries] {
		return Tries{}, fmt.Errorf("%.80q: %w", bytes.TrimRight(data[:min(len(data), 80)], "\n\x00"), ErrState)
	}
	return Tries{Serial: uint32(n), Count: uint32(count)}, nil
}

// Order is what the boot loader does: the slots whose images it starts, in
// order, and the tries that it writes first (nil: none; when they cannot be
// written the trial is left out). State, copy and tries are the files' contents.
// It is the script's meaning, for checks of what a loss of power leaves.
func Order(state, copied, tries []byte) (slots []string, counted []byte) {
	s, err := DecodeState(state)
	if err != nil {
		s, err = DecodeState(copied)
	}
	if err != nil {
		return []string{A, B}, nil
	}
	rest := []string{s.Slot, Other(s.Slot)}
	if s.Trial == "" {
		return rest, nil
	}
	t, err := DecodeTries(tries)
	// A count that is torn or of another trial is not known: no trial then.
	if err != nil || t.Serial != s.Serial || t.Count >= Limit {
		return rest, nil
	}
	return append([]string{s.Trial}, rest...), Tries{s.Serial, t.Count + 1}.Encode()
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// file is a text as U-Boot's "env import -t" reads it, filled with empty lines.
func file(pairs ...string) []byte {
	var b bytes.Buffer
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s=%s\n", pairs[i], pairs[i+1])
	}
	for b.Len() < FileBytes {
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// variables reads such a text, also as "env export -t" fills it up, with zeros.
func variables(data []byte) map[string]string {
	v := map[string]string{}
	if len(data) > FileBytes {
		return v
	}
	for line := range strings.Lines(string(bytes.TrimRight(data, "\x00"))) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			v[key] = value
		}
	}
	return v
}
