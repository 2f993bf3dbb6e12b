package optics

import (
	"slices"
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
	for _, a := range s.Believed(m.Alarms) {
		r.Alarms = append(r.Alarms, a.String())
	}
	for _, a := range s.Believed(m.Warnings) {
		r.Warnings = append(r.Warnings, a.String())
	}
	if !m.ChecksumOK && r.Problem == "" {
		r.Problem = "a checksum of the module's memory is wrong: what it says may be wrong too"
	}
	return r
}

// Believed leaves out what says nothing: a transmitter that is off sends nothing.
func (s State) Believed(alarms []sff.Alarm) []sff.Alarm {
	return slices.DeleteFunc(slices.Clone(alarms), func(a sff.Alarm) bool {
		if a.Quantity != sff.TxPower && a.Quantity != sff.TxBias {
			return false
		}
		off := slices.ContainsFunc(s.Module.Lanes, func(l sff.Lane) bool { return l.Lane == a.Lane && set(l.TxDisabled) })
		return off || s.LowPower || s.TxOff
	})
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
