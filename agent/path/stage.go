package path

import (
	"fmt"
	"time"

	"rocelink"
)

const (
	frames  = "frames"
	packets = "packets"
)

// completes reports whether messages of the verb give completions on the host.
func completes(v rocelink.Verb) bool { return v != rocelink.VerbWrite && v != rocelink.VerbRead }

// stages makes the stages of a path. Where frames still get through, what comes
// after the broken stage keeps up with it.
func (e *evidence) stages(broken Name, severity Severity) []Stage {
	list := make([]Stage, 0, len(Names))
	for _, n := range Names {
		list = append(list, e.stage(n))
	}
	past := false
	for i := range list {
		s := &list[i]
		switch {
		case s.Name == broken:
			s.State, past = Broken, true
		case past && s.State == OK && severity == Critical:
			s.State = After
		}
	}
	return list
}

func (e *evidence) stage(n Name) Stage {
	s := Stage{Name: n, Unit: frames, State: Unknown}
	read := e.verb() == rocelink.VerbRead
	onBoard := func(unit string, of func(*rocelink.StreamStatus) rocelink.Count) Stage {
		s.Unit = unit
		if e.at != nil && e.board != nil {
			s.State, s.Count = OK, of(e.at)
			s.AgeMS = millis(e.view.Now.Sub(e.board.Last().Sampled()))
			if b := e.onBoard; b != nil {
				s.Rate = rate(of(&b.now)-of(&b.old), b.seconds)
			}
		}
		return s
	}
	onHost := func(of func(*rocelink.Totals) rocelink.Count) Stage {
		switch {
		case e.hosts == nil || e.host == nil:
		case e.at != nil && !e.same:
			s.Note = "of another session"
		default:
			s.State, s.Count = OK, of(&e.hosts.Total)
			s.AgeMS = millis(e.host.Silent(e.view.Now))
			if h := e.onHost; h != nil {
				s.Rate = rate(less(of(&h.now.Total), of(&h.old.Total)), h.seconds)
			}
		}
		return s
	}
	absent := func(why string) Stage {
		s.State, s.Note = Absent, why
		return s
	}
	switch n {
	case Source:
		onBoard(frames, func(s *rocelink.StreamStatus) rocelink.Count { return s.SourceFrames })
		if e.at != nil && e.at.SourceDropped > 0 {
			s.Note = fmt.Sprintf("%d dropped before", e.at.SourceDropped)
		}
	case Posted:
		return onBoard(frames, func(s *rocelink.StreamStatus) rocelink.Count { return s.FramesPosted })
	case Sent:
		return onBoard(packets, func(s *rocelink.StreamStatus) rocelink.Count { return s.PacketsSent })
	case Acknowledged:
		return onBoard(packets, func(s *rocelink.StreamStatus) rocelink.Count { return s.PacketsAcked })
	case Resent:
		return onBoard(packets, func(s *rocelink.StreamStatus) rocelink.Count { return s.PacketsResent })
	case Delivered:
		onBoard(frames, func(s *rocelink.StreamStatus) rocelink.Count { return s.FramesDone })
		if read {
			s.Note = "read by the board"
		}
	case MACOut:
		s.Unit, s.Port = packets, true
		if e.board != nil {
			last := e.board.Last()
			if v, ok := macOut(&last.BoardStatus); ok {
				s.State, s.Count, s.AgeMS = OK, v, millis(e.view.Now.Sub(last.Sampled()))
			}
			if d, ok := e.macMoved(); ok {
				s.Rate = rate(d, e.onBoard.seconds)
			}
		}
	case NICIn:
		s.Unit, s.Port = packets, true
		if e.host != nil {
			last := e.host.Last()
			v, ok := nicIn(&last.HostStatus)
			if !ok {
				return absent("the device does not count packets")
			}
			s.State, s.Count, s.AgeMS = OK, v, millis(e.host.Silent(e.view.Now))
			if d, ok := e.nicMoved(); ok {
				s.Rate = rate(d, e.onHost.seconds)
			}
		}
	case Completions:
		switch {
		case read:
			return absent("READ gives the host no completion")
		case e.verb() == rocelink.VerbWrite:
			return absent("plain WRITE gives none: slots are watched")
		}
		return onHost(func(t *rocelink.Totals) rocelink.Count { return t.Messages })
	case Accepted:
		if read {
			return absent("the board takes what it reads")
		}
		return onHost(func(t *rocelink.Totals) rocelink.Count { return t.Accepted })
	case Verified:
		if read {
			onBoard(frames, func(s *rocelink.StreamStatus) rocelink.Count { return s.ReadGood })
			s.Note = "by the board"
			return s
		}
		onHost(func(t *rocelink.Totals) rocelink.Count { return t.Verified })
		if s.State == OK && e.hosts.Total.Verified == 0 && e.hosts.Total.Corrupt == 0 {
			return absent("the content is not checked")
		}
	}
	return s
}

func rate(d rocelink.Count, seconds float64) *float64 {
	if seconds <= 0 {
		return nil
	}
	v := float64(d) / seconds
	return &v
}

// since writes how long something lasts and when it began, by this machine's
// clock.
func (e *evidence) since(d time.Duration) string {
	return fmt.Sprintf("since %s (%s)", e.view.Now.Add(-d).Local().Format("15:04:05"), span(d))
}

// span writes a duration for people.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}

// share writes a part of a whole in per cent.
func share(part, whole rocelink.Count) string {
	if whole == 0 {
		return "0 %"
	}
	v := 100 * min(float64(part)/float64(whole), 1)
	if v < 10 {
		return fmt.Sprintf("%.2g %%", v)
	}
	return fmt.Sprintf("%.0f %%", v)
}
