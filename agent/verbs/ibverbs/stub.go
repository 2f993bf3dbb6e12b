//go:build !(linux && cgo && ibverbs)

package ibverbs

import (
	"fmt"

	"rocelink/agent/verbs"
)

// Available reports whether this program was built with libibverbs.
const Available = false

type provider struct{}

// New returns a provider that opens nothing.
func New(Config) verbs.Provider { return provider{} }

// Name implements verbs.Provider.
func (provider) Name() string { return "ibverbs" }

// Open implements verbs.Provider.
func (provider) Open(name string) (verbs.Device, error) {
	return nil, fmt.Errorf("open ibverbs device %q: %w: install a C compiler and the headers "+
		"(Debian: gcc libibverbs-dev; Fedora: gcc rdma-core-devel), build with -tags ibverbs on Linux, or use the soft provider",
		name, ErrNotBuilt)
}
