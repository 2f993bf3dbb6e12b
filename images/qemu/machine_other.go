//go:build !linux

package qemu

import "context"

// Machine is a board that runs.
type Machine struct{}

// Start fails with ErrUnsupported.
func Start(context.Context, Config) (*Machine, error) { return nil, ErrUnsupported }

// Done is closed when everything has ended.
func (m *Machine) Done() <-chan struct{} { return nil }

// Wait returns ErrUnsupported.
func (m *Machine) Wait() error { return ErrUnsupported }

// Write returns ErrUnsupported.
func (m *Machine) Write([]byte) (int, error) { return 0, ErrUnsupported }

// Processes are the process numbers of the emulator and of the fabric.
func (m *Machine) Processes() (emulator, fabric int) { return 0, 0 }
