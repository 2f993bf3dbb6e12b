//go:build linux && cgo && ibverbs

package ibverbs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// words are port counters that count words of four bytes (IBTA vol. 1,
// PortCountersExtended). They are handed on as bytes, under a name that says so.
var words = map[string]string{
	"port_rcv_data":  "port_rcv_bytes",
	"port_xmit_data": "port_xmit_bytes",
}

// Counters implements verbs.Device: the port's counters and the driver's own
// (hw_counters), which the kernel reads anew only every few milliseconds.
func (d *device) Counters() map[string]uint64 {
	m := map[string]uint64{}
	port := filepath.Join(d.sysfs, "class/infiniband", d.name, "ports", strconv.Itoa(portNumber))
	for _, folder := range []string{"counters", "hw_counters"} {
		files, err := os.ReadDir(filepath.Join(port, folder))
		if err != nil {
			continue
		}
		for _, f := range files {
			name := f.Name()
			if name == "lifespan" { // how long hw_counters are cached, in ms
				continue
			}
			b, err := os.ReadFile(filepath.Join(port, folder, name))
			if err != nil {
				continue
			}
			// One that the device lacks reads "N/A (no PMA)".
			v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
			if err != nil {
				continue
			}
			if bytes, ok := words[name]; ok {
				name, v = bytes, 4*v
			}
			m[name] = v
		}
	}
	return m
}
