//go:build linux

package udp

import (
	"errors"
	"testing"

	"rocelink/fpga/roce"
)

func TestLoopback(t *testing.T) {
	for _, payload := range []int{0, 1, 4096} {
		rx, tx := listen(t, testAddr(), 0, Config{}), listen(t, testAddr(), 0, Config{})
		stats, err := Loopback(tx, rx, payload, 3000)
		if err != nil || stats.Packets != 3000 || stats.Lost != 0 || stats.Bytes != int64(3000*payload) || stats.Elapsed <= 0 {
			t.Errorf("%d bytes: %+v, %v", payload, stats, err)
		}
	}
	rx, tx := listen(t, testAddr(), 0, Config{}), listen(t, testAddr(), 0, Config{})
	if _, err := Loopback(tx, rx, 4097, 1); !errors.Is(err, roce.ErrLength) {
		t.Errorf("more than a packet holds: %v", err)
	}
	tx.Close()
	if _, err := Loopback(tx, rx, 64, 1); err == nil {
		t.Error("no error from a closed socket")
	}
}
