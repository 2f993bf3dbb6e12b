//go:build !linux

package verbs

import (
	"errors"
	"fmt"
)

func allocMemory(int, bool) (*Memory, error) {
	return nil, fmt.Errorf("allocate memory: %w on this system", errors.ErrUnsupported)
}

// Free unmaps the memory. It is idempotent.
func (m *Memory) Free() error { return nil }
