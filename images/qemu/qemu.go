// Package qemu runs a board's image under QEMU, with a program that plays the
// fabric through memory which both share. Nothing that it starts outlives it, and
// it leaves no files.
package qemu

import (
	"errors"
	"io"
	"time"

	"rocelink/boards"
)

// Errors of Start.
var (
	// ErrNoEmulator means that QEMU cannot play this board, or is not installed.
	ErrNoEmulator = errors.New("no emulator for this board")
	// ErrUnsupported means that this operating system has no shared memory of
	// the kind that is needed.
	ErrUnsupported = errors.New("running images is supported on Linux only")
)

// Host is the machine that runs QEMU, as the board sees it.
const Host = "10.0.2.2"

// Program is the emulator.
const Program = "qemu-system-aarch64"

// Config says what to run. Board and Image must be set.
type Config struct {
	Board *boards.Board
	// Image is a FIT image. Kernel, device tree and initramfs are taken out of
	// it as a boot loader would; what is damaged does not run.
	Image []byte
	// Card is the image of a memory card in the board's slot; what the board
	// writes is forgotten. Without, the board is told not to wait for one.
	Card string
	// Arguments are added to the kernel's command line, the last of a kind wins.
	Arguments []string
	// QEMU is the emulator; default Program.
	QEMU string
	// Fabric is the program that plays the fabric, with its arguments; those that
	// say where the registers are are added. Without, nobody plays it.
	Fabric []string
	// Console takes what the board says at its serial port; nil discards it.
	// Messages take what QEMU and the fabric say; nil discards it.
	Console, Messages io.Writer
}

// stopLimit is how long a program has to end before it is ended.
const stopLimit = 5 * time.Second
