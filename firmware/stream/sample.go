package stream

import (
	"fmt"

	"rocelink"
	"rocelink/fpga/regs"
)

// sample takes state and counters of a stream.
func (m *Manager) sample(s *session) error {
	fs, err := m.fabric.LatchStream(s.index)
	if err != nil {
		return err
	}
	qs, port, err := m.fabric.LatchQP(s.index)
	if err != nil {
		return err
	}
	m.port = port
	st := &s.status
	st.QPState = qs.State
	st.NextPSN, st.UnackedPSN = uint32(qs.NextPSN), uint32(qs.Unacked)
	for _, c := range []struct {
		to   *rocelink.Count
		from uint64
	}{
		{&st.SourceFrames, fs.SourceFrames}, {&st.SourceBytes, fs.SourceBytes}, {&st.SourceDropped, fs.SourceDropped},
		{&st.FramesPosted, fs.FramesPosted}, {&st.FramesDone, fs.FramesDone}, {&st.BytesDone, fs.BytesDone},
		{&st.ReadGood, fs.ReadGood}, {&st.ReadBad, fs.ReadBad}, {&st.CreditStalls, fs.CreditStalls},
		{&st.PacketsSent, qs.PacketsSent}, {&st.PacketsResent, qs.PacketsResent}, {&st.PacketsAcked, qs.PacketsAcked},
		{&st.Timeouts, qs.Timeouts}, {&st.SequenceNAKs, qs.SequenceNAKs}, {&st.RNRNAKs, qs.RNRNAKs},
		{&st.RNRMessages, qs.RNRMessages}, {&st.FatalNAKs, qs.FatalNAKs},
	} {
		*c.to = rocelink.Count(c.from)
	}
	before := st.State
	if fs.Ended && !st.Ended {
		st.Ended = true
		m.event("stream-ended", s, "the source ended after %d frames", fs.SourceFrames)
	}
	up, why := m.cfg.LinkUp()
	if st.Cause == rocelink.StreamCauseLink && st.State != rocelink.StreamError && up {
		st.Cause, st.Problem = "", ""
	}
	switch {
	case qs.Failed:
		word, text := cause(qs.Cause)
		if !up && word == rocelink.StreamCauseRetry {
			word, text = rocelink.StreamCauseLink, "the link is down: "+why+"; "+text
		}
		if st.State != rocelink.StreamError || st.Cause == "" {
			st.Cause, st.Problem = word, "queue pair in error: "+text
		}
		st.State = rocelink.StreamError
	case fs.Code == regs.StreamStatStateStateError:
		// The engine follows its queue pair, which the next sample shows.
		st.State, st.Problem = rocelink.StreamError, "stream engine in error"
	case fs.Code == regs.StreamStatStateStateConfigured:
		st.State = rocelink.StreamOpen
	case fs.Code == regs.StreamStatStateStateRunning:
		st.State = rocelink.StreamRunning
	case fs.Code == regs.StreamStatStateStateStopping:
		st.State = rocelink.StreamStopping
	case fs.Code == regs.StreamStatStateStateStopped:
		st.State = rocelink.StreamStopped
	default:
		st.State, st.Cause, st.Problem = rocelink.StreamError, rocelink.StreamCauseFabric, fmt.Sprintf("the fabric shows the stream as %s: something else reset it", fs.State)
	}
	switch {
	case st.State == rocelink.StreamStopped && st.Ended && st.Cause == "":
		st.Cause = rocelink.StreamCauseSourceDone
	case !up && st.Cause == "" && (st.State == rocelink.StreamRunning || st.State == rocelink.StreamStopping):
		st.Cause, st.Problem = rocelink.StreamCauseLink, "the link is down: "+why
	}
	if st.State == before {
		return nil
	}
	switch st.State {
	case rocelink.StreamError:
		m.event("stream-error", s, "%s", st.Problem)
	case rocelink.StreamStopped:
		m.event("stream-stopped", s, "all %d frames are delivered", fs.FramesDone)
	}
	return nil
}

// cause says why a queue pair failed: as a stable word, and in words with what
// to look at.
func cause(name string) (word, text string) {
	switch name {
	case "RetryExceeded":
		return rocelink.StreamCauseRetry, "no acknowledgement: the host is gone, its queue pair is not ready, or packets are lost (" + name + ")"
	case "RNRRetryExceeded":
		return rocelink.StreamCauseRNR, "the host posts no receives (" + name + ")"
	case "RemoteInvalidRequest":
		return rocelink.StreamCauseRequest, "the host refused a request as invalid: frame longer than its receives, or another path MTU (" + name + ")"
	case "RemoteAccess":
		return rocelink.StreamCauseAccess, "the host refused the access: rkey, bounds or permission of the region (" + name + ")"
	case "RemoteOperational":
		return rocelink.StreamCauseOperation, "the host could not carry a request out (" + name + ")"
	case "BadResponse":
		return rocelink.StreamCauseOperation, "a response came that no request explains (" + name + ")"
	}
	return rocelink.StreamCauseFabric, name
}
