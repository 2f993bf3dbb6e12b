package optics

import (
	"time"

	"rocelink"
	"rocelink/firmware/optics/sff"
)

// darkMW is the power below which nothing is received: −30 dBm. Receivers of
// 100G modules lose the signal at −12 to −20 dBm and show some −40 dBm when dark.
const darkMW = 0.001

// Record is the state as a board publishes it.
func (s State) Record() rocelink.Module {
	m := s.Module
	r := rocelink.Module{
		Cage: s.Cage, Phase: string(s.Phase), Since: s.Since.UTC().Truncate(time.Millisecond), Insertions: rocelink.Count(s.Insertions),
		LowPower: s.LowPower, Problem: s.Problem,
	}
	if !m.Present {
		return r
	}
	r.Identifier, r.Vendor, r.Part, r.Serial, r.Copper = m.Identifier, m.Vendor, m.Part, m.Serial, m.Copper
	r.TemperatureC, r.VccV = m.TemperatureC, m.VccV
	for _, l := range m.Lanes {
		r.Lanes = append(r.Lanes, rocelink.ModuleLane{
			Lane: l.Lane, RxPowerMW: l.RxPowerMW, TxPowerMW: l.TxPowerMW, TxBiasMA: l.TxBiasMA,
			NoLight: noLight(m, l), TxDisabled: set(l.TxDisabled) || s.TxOff, TxFault: set(l.TxFault),
		})
	}
	for _, a := range m.Alarms {
		r.Alarms = append(r.Alarms, a.String())
	}
	for _, a := range m.Warnings {
		r.Warnings = append(r.Warnings, a.String())
	}
	return r
}

// noLight judges a lane by its power where it is measured: the flag is latched
// and tells of the past as well. It decides where the power is so low that it
// may be noise, and where none is measured.
func noLight(m sff.Module, l sff.Lane) bool {
	if m.Copper && !m.Active {
		return false
	}
	if l.RxPowerMW == nil {
		return set(l.RxLOS)
	}
	if *l.RxPowerMW <= darkMW {
		return true
	}
	weak := m.Thresholds != nil && m.Thresholds.RxPowerMW != nil && *l.RxPowerMW < m.Thresholds.RxPowerMW.LowAlarm
	return weak && set(l.RxLOS)
}

func set(flag *bool) bool { return flag != nil && *flag }
