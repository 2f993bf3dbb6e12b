package board

import (
	"fmt"
	"time"

	"rocelink"
	"rocelink/boards"
)

// status is the state of everything as of now. The caller holds mu.
func (b *Board) status(now time.Time) rocelink.BoardStatus {
	b.sequence++
	s := rocelink.BoardStatus{
		Version: rocelink.Version, Board: b.cfg.Name, Epoch: b.streams.Epoch(), Sequence: rocelink.Count(b.sequence),
		Time: time.Now().UTC().Truncate(time.Millisecond), UptimeMS: now.Sub(b.start).Milliseconds(), SampledMS: max(b.sampled.Sub(b.start).Milliseconds(), 0), Model: b.cfg.Description.Model,
		Fabric:  rocelink.Fabric{Restarts: rocelink.Count(b.setUps), Problem: b.missing},
		Streams: b.streams.Status(),
	}
	f := b.finding
	s.Link = rocelink.Link{
		Driver: b.cfg.Description.MAC.Driver, State: string(b.link.State), Up: b.link.Up, Since: b.link.Since.UTC().Truncate(time.Millisecond),
		Losses: rocelink.Count(b.link.Losses), Status: b.link.Reading.Status,
		Problem: f.Text, Cause: f.Cause, Cage: f.Cage, Lane: f.Lane, Remedy: f.Remedy,
	}
	if b.cfg.FEC != boards.FECNone {
		s.Link.FEC = b.cfg.FEC
	}
	for _, c := range b.cfg.Description.Cages {
		if b.ofPort(c) {
			s.Link.Cages = append(s.Link.Cages, c.Name)
		}
	}
	s.Modules, s.Clocks = b.modules(now), b.clockRecords()
	if list := b.sensors.Load(); list != nil {
		s.Sensors = *list
	}
	b.describe(&s)
	if b.hw == nil {
		return s
	}
	i := b.hw.core.Info()
	fabric := &s.Fabric
	fabric.Present, fabric.Version, fabric.Build, fabric.Emulated = true, i.Version, fmt.Sprintf("%08x", i.Build), i.Emulated
	fabric.QueuePairs, fabric.MaxMTU = i.QueuePairs, int(i.MaxMTU)
	fabric.Counters = map[string]rocelink.Count{}
	b.streams.Port().Each(func(n string, v uint64) { fabric.Counters[n] = rocelink.Count(v) })
	if b.hw.mac != nil {
		s.Link.Counters = map[string]rocelink.Count{}
		b.hw.mac.Each(func(n string, v uint64) { s.Link.Counters[n] = rocelink.Count(v) })
	}
	return s
}

// publish hands the status on. It never blocks. The caller holds mu.
func (b *Board) publish(now time.Time) {
	b.sent, b.dirty = now, false
	b.up.status(b.status(now))
}

// Status samples everything and returns its state.
func (b *Board) Status() rocelink.BoardStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sampleStatus()
}

func (b *Board) sampleStatus() rocelink.BoardStatus {
	now := b.cfg.Now()
	if b.hw != nil {
		if err := b.hw.core.Check(); err != nil {
			b.lose(err)
		} else {
			b.streams.Sample()
			b.sampled = now
			if b.hw.mac != nil {
				b.hw.ticked = now
				b.sampleMAC()
			}
			b.checkFault()
		}
	}
	b.judge(now)
	return b.status(now)
}
