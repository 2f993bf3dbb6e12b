//go:build !linux

package receive

import (
	"errors"
	"fmt"
)

func pin(cpu int) (func(), error) {
	return nil, fmt.Errorf("pin to CPU %d: %w on this system", cpu, errors.ErrUnsupported)
}
