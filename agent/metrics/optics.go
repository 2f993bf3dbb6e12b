package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"rocelink"
)

// What a record may make metrics of.
const (
	maxModules = 8
	maxLanes   = 8
	maxSensors = 64
)

// optics sends the metrics of modules, clocks and sensors. A name that is there
// twice would make the whole scrape invalid: the first counts.
func (s scrape) optics(board string, b rocelink.BoardStatus) {
	seen := map[string]bool{}
	first := func(kind, name string) (string, bool) {
		name = label(name)
		known := seen[kind+name]
		seen[kind+name] = true
		return name, !known
	}
	gauge := func(d *prometheus.Desc, v *float64, scale float64, labels ...string) {
		if v != nil {
			s.gauge(d, *v*scale, labels...)
		}
	}
	for _, m := range b.Modules[:min(len(b.Modules), maxModules)] {
		cage, ok := first("cage ", m.Cage)
		if !ok {
			continue
		}
		s.gauge(moduleReady, truth(m.Phase == "ready"), board, cage)
		if m.Phase != "ready" {
			continue
		}
		s.gauge(moduleInfo, 1, board, cage, label(m.Identifier), label(m.Vendor), label(m.Part), label(m.Serial))
		gauge(moduleCelsius, m.TemperatureC, 1, board, cage)
		gauge(moduleVolts, m.VccV, 1, board, cage)
		s.gauge(moduleAlarms, float64(len(m.Alarms)), board, cage, "alarm")
		s.gauge(moduleAlarms, float64(len(m.Warnings)), board, cage, "warning")
		for _, l := range m.Lanes[:min(len(m.Lanes), maxLanes)] {
			lane, ok := first("lane "+cage+" ", strconv.Itoa(l.Lane))
			if !ok {
				continue
			}
			const milli = 1e-3
			gauge(laneRx, l.RxPowerMW, milli, board, cage, lane)
			gauge(laneTx, l.TxPowerMW, milli, board, cage, lane)
			gauge(laneBias, l.TxBiasMA, milli, board, cage, lane)
			s.gauge(laneDark, truth(l.NoLight), board, cage, lane)
		}
	}
	for _, c := range b.Clocks[:min(len(b.Clocks), maxModules)] {
		if name, ok := first("clock ", c.Name); ok && c.Locked != nil {
			s.gauge(clockLocked, truth(*c.Locked), board, name)
		}
	}
	for _, v := range b.Sensors[:min(len(b.Sensors), maxSensors)] {
		d := map[string]*prometheus.Desc{"C": boardCelsius, "V": boardVolts}[v.Unit]
		if d == nil {
			continue
		}
		if name, ok := first("sensor "+v.Unit+" ", v.Name); ok {
			s.gauge(d, v.Value, board, name)
		}
	}
}
