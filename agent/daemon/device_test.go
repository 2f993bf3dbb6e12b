package daemon

import "testing"

// A removed device is opened again by its name, whatever chose it at first.
func TestSameDevice(t *testing.T) {
	for _, c := range []struct{ asked, want string }{
		{"", "mlx5_0"},
		{"auto", "mlx5_0"},
		{"mlx5_0", "mlx5_0"},
		{"192.0.2.7", "mlx5_0@192.0.2.7"},
		{"192.0.2.0/24", "mlx5_0@192.0.2.0/24"},
		{"fe80::1%eth1", "mlx5_0@fe80::1%eth1"},
		{"auto@192.0.2.0/24", "mlx5_0@192.0.2.0/24"},
		{"mlx5_0@192.0.2.7", "mlx5_0@192.0.2.7"},
	} {
		if got := sameDevice(c.asked, "mlx5_0"); got != c.want {
			t.Errorf("%q: opened again as %q, want %q", c.asked, got, c.want)
		}
	}
}
