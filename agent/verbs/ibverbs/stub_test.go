//go:build !(linux && cgo && ibverbs)

package ibverbs

import (
	"errors"
	"strings"
	"testing"
)

func TestStubSaysWhatIsMissing(t *testing.T) {
	p := New(Config{})
	d, err := p.Open("mlx5_0")
	if d != nil || !errors.Is(err, ErrNotBuilt) || Available {
		t.Fatalf("Open: %v, %v; available %v", d, err, Available)
	}
	for _, want := range []string{"mlx5_0", "libibverbs-dev", "rdma-core-devel", "-tags ibverbs", "soft"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	if p.Name() != "ibverbs" {
		t.Errorf("name %q", p.Name())
	}
}
