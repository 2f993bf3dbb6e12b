//go:build linux && cgo && ibverbs

package ibverbs

import (
	"fmt"

	"rocelink/agent/verbs"
)

// CreateSRQ implements verbs.ProtectionDomain.
func (pd *domain) CreateSRQ(int) (verbs.SharedReceiveQueue, error) {
	return nil, fmt.Errorf("create shared receive queue on %s: %w: this provider makes none", pd.device.name, verbs.ErrLimit)
}
