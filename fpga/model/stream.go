package model

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"time"

	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

type streamState uint8

const (
	streamIdle       streamState = regs.StreamStatStateStateIdle
	streamConfigured streamState = regs.StreamStatStateStateConfigured
	streamRunning    streamState = regs.StreamStatStateStateRunning
	streamStopping   streamState = regs.StreamStatStateStateStopping
	streamStopped    streamState = regs.StreamStatStateStateStopped
	streamError      streamState = regs.StreamStatStateStateError
)

// trailerBytes follow a frame of verb Write, at the end of its slot.
const trailerBytes = 16

// creditBytes is the length of the Credit word.
const creditBytes = 8

// streamConfig is what Commit takes over.
type streamConfig struct {
	verb       uint32
	external   bool
	pattern    pattern.Kind
	crc        bool
	solicited  bool
	frameBytes uint32
	slots      uint32
	stride     uint32
	base       uint64
	rkey       uint32
	credit     uint64
	kbps       uint32
	burst      uint32
	count      uint64
}

// streamCounters are the counters of one stream, as the registers name them.
type streamCounters struct {
	sourceFrames, sourceBytes uint64
	framesPosted              uint64
	framesDone, bytesDone     uint64
	readGood, readBad         uint64
	creditStalls, creditReads uint64
	released                  uint64
}

// stream takes frames from its source and hands messages to its queue pair, one
// at a time, which cuts them into packets as its window allows.
type stream struct {
	fabric *Fabric
	qp     *queuePair
	source *Source

	state streamState
	ended bool
	cfg   streamConfig
	pacer pacer

	msg      message
	sequence uint64 // of the next frame
	trailer  message
	owed     bool // trailer is to be sent next

	creditBusy bool          // a READ of the Credit word is outstanding
	creditAsk  uint64        // sequence when it was last asked for
	creditAt   time.Duration // not to be asked again before, without progress
	blocked    bool          // waits for the host to release a slot

	count   streamCounters
	dropped uint64 // the source's count when the stream began
}

func (s *stream) init(f *Fabric, q *queuePair, index int) {
	s.fabric, s.qp = f, q
	if index < len(f.cfg.Sources) {
		s.source = f.cfg.Sources[index]
	}
}

// reset returns to Idle. The queue pair cannot go on when a part of what it was
// given is taken away: the peer may have seen any of it.
func (s *stream) reset() {
	if s.qp.state == qpReady && (s.msg.active || s.owed || !s.qp.idle()) {
		s.qp.reset()
	}
	*s = stream{fabric: s.fabric, qp: s.qp, source: s.source}
}

// lost tells the stream that its queue pair does not deliver any more.
func (s *stream) lost() {
	if s.state == streamRunning || s.state == streamStopping {
		s.state = streamError
	}
	s.msg.active, s.owed = false, false
}

// start begins to take frames.
func (s *stream) start() {
	s.state = streamRunning
	s.pacer = newPacer(s.fabric.now, s.fabric.cfg.PaceSlack, s.cfg.kbps, s.cfg.burst, s.cfg.frameBytes)
}

// stop takes no more frames.
func (s *stream) stop() {
	if s.state == streamRunning {
		s.state = streamStopping
	}
	s.settle()
}

// end is stop by the source itself.
func (s *stream) end() {
	s.ended = true
	s.stop()
}

// settle goes to Stopped when all is delivered.
func (s *stream) settle() {
	if s.state == streamStopping && !s.msg.active && !s.owed && s.qp.idle() {
		s.state = streamStopped
	}
}

// nextMessage fills in msg. If there is none it returns when to ask again, with
// Never when only an acknowledgement or a source can bring one.
func (s *stream) nextMessage() (wait time.Duration, ok bool) {
	if s.owed {
		s.owed = false
		s.msg = s.trailer
		return 0, true
	}
	if s.state != streamRunning {
		return Never, false
	}
	if s.cfg.verb == regs.StreamConfigVerbWrite && s.cfg.credit != 0 {
		if wait, ok := s.checkCredit(); !ok || s.msg.active {
			return wait, ok
		}
	}
	if s.cfg.verb == regs.StreamConfigVerbRead && s.qp.readsFull() {
		return Never, false
	}
	if !s.cfg.external && s.cfg.count > 0 && s.sequence >= s.cfg.count {
		s.end()
		return Never, false
	}
	if at := s.pacer.wait(); at > s.fabric.now {
		return at, false
	}
	n := s.cfg.frameBytes
	if s.cfg.external {
		var ok bool
		if n, ok = s.nextExternal(); !ok {
			return Never, false
		}
	}
	s.take(n)
	return 0, true
}

// nextExternal returns the length of the next frame of the external source.
func (s *stream) nextExternal() (n uint32, ok bool) {
	want := s.cfg.frameBytes - s.sumBytes()
	have, last := s.source.ready(want)
	switch {
	case have == want:
	case !last:
		return 0, false
	case have == 0:
		s.end()
		return 0, false
	}
	return have + s.sumBytes(), true
}

// take makes the message of the next frame, n bytes long.
func (s *stream) take(n uint32) {
	s.pacer.take(s.fabric.now, n)
	s.msg = message{
		active:     true,
		sequence:   s.sequence,
		length:     n,
		frameBytes: n,
		rkey:       s.cfg.rkey,
		imm:        uint32(s.sequence),
		solicited:  s.cfg.solicited,
	}
	slot := s.cfg.base
	if s.cfg.slots > 0 {
		slot += s.sequence % uint64(s.cfg.slots) * uint64(s.cfg.stride)
	}
	s.msg.address = slot
	switch s.cfg.verb {
	case regs.StreamConfigVerbSend:
		s.msg.op = roce.SendOnly
	case regs.StreamConfigVerbSendImm:
		s.msg.op = roce.SendOnlyImm
	case regs.StreamConfigVerbWriteImm:
		s.msg.op = roce.WriteOnlyImm
	case regs.StreamConfigVerbWrite:
		s.msg.op = roce.WriteOnly
		s.msg.frameBytes = 0
		s.owed = true
		s.trailer = message{
			active:     true,
			kind:       kindTrailer,
			op:         roce.WriteOnly,
			sequence:   s.sequence,
			length:     trailerBytes,
			frameBytes: n,
			address:    slot + uint64(s.cfg.stride) - trailerBytes,
			rkey:       s.cfg.rkey,
		}
	case regs.StreamConfigVerbRead:
		s.msg.op = roce.ReadRequest
		s.msg.kind = kindRead
		s.msg.solicited = false
	}
	s.count.sourceFrames++
	s.count.sourceBytes += uint64(n)
	s.count.framesPosted++
	s.sequence++
	if !s.cfg.external && s.sequence == s.cfg.count {
		s.end()
	}
}

// checkCredit looks whether the slot of the next frame is released. ok says that
// there may be a message: one that asks for the Credit word if msg is active
// then, the frame if not.
func (s *stream) checkCredit() (wait time.Duration, ok bool) {
	slots := uint64(s.cfg.slots)
	var held uint64 // slots that the host has not released
	if s.count.released < s.sequence {
		held = s.sequence - s.count.released
	}
	full := held >= slots
	if !s.creditBusy && !s.qp.readsFull() && 2*held >= slots &&
		(s.sequence-s.creditAsk >= max(1, slots/8) || full && s.fabric.now >= s.creditAt) {
		s.creditBusy = true
		s.creditAsk = s.sequence
		s.count.creditReads++
		s.msg = message{
			active:  true,
			kind:    kindCredit,
			op:      roce.ReadRequest,
			length:  creditBytes,
			address: s.cfg.credit,
			rkey:    s.cfg.rkey,
		}
		return 0, true
	}
	if !full {
		s.blocked = false
		return 0, true
	}
	if !s.blocked {
		s.blocked = true
		s.count.creditStalls++
	}
	if s.creditBusy {
		return Never, false
	}
	return s.creditAt, false
}

// sumBytes is how many bytes of a frame the CRC takes.
func (s *stream) sumBytes() uint32 {
	if s.cfg.crc {
		return pattern.CRCLen
	}
	return 0
}

// fill writes the bytes of a message from its offset on.
func (s *stream) fill(dst []byte, m *message) {
	if m.kind == kindTrailer {
		binary.LittleEndian.PutUint32(dst[0:], m.frameBytes)
		binary.LittleEndian.PutUint32(dst[4:], 0)
		binary.LittleEndian.PutUint64(dst[8:], m.sequence+1)
		return
	}
	body := s.body(m, len(dst))
	if data := dst[:body]; s.cfg.external {
		s.source.read(data)
	} else {
		pattern.FillAt(data, s.cfg.pattern, m.sequence, int(m.offset))
	}
	if s.cfg.crc {
		m.sum = crc32.Update(m.sum, crc32.IEEETable, dst[:body])
		s.tail(dst[body:], m, body)
	}
}

// body is how many of the next n bytes of a message are data and not CRC.
func (s *stream) body(m *message, n int) int {
	data := int(m.length - s.sumBytes())
	return min(n, max(0, data-int(m.offset)))
}

// tail writes the part of the CRC that follows the given bytes of data.
func (s *stream) tail(dst []byte, m *message, body int) {
	if len(dst) == 0 {
		return
	}
	var sum [pattern.CRCLen]byte
	binary.LittleEndian.PutUint32(sum[:], m.sum)
	copy(dst, sum[int(m.offset)+body-int(m.length-pattern.CRCLen):])
}

// readData takes the next bytes of a READ.
func (s *stream) readData(r *read, data []byte) {
	if r.kind == kindCredit {
		copy(r.data[:], data)
		r.offset += uint32(len(data))
		return
	}
	body := s.body(&r.message, len(data))
	if r.good {
		expected := r.sequence % uint64(s.cfg.slots)
		r.good = pattern.CheckAt(data[:body], s.cfg.pattern, expected, int(r.offset)) < 0
	}
	if s.cfg.crc && r.good {
		r.sum = crc32.Update(r.sum, crc32.IEEETable, data[:body])
		var sum [pattern.CRCLen]byte
		rest := sum[:len(data)-body]
		s.tail(rest, &r.message, body)
		r.good = bytes.Equal(rest, data[body:])
	}
	r.offset += uint32(len(data))
}

// readDone takes the result of a READ that is complete.
func (s *stream) readDone(r *read) {
	switch {
	case r.kind == kindCredit:
		s.creditBusy = false
		s.creditAt = s.fabric.now + s.fabric.cfg.CreditInterval
		s.count.released = binary.LittleEndian.Uint64(r.data[:])
	case r.good:
		s.count.readGood++
	default:
		s.count.readBad++
	}
}

// delivered takes the last packet of a message that the peer acknowledged.
func (s *stream) delivered(p *slot) {
	switch {
	case p.kind == kindCredit, p.kind == kindFrame && s.cfg.verb == regs.StreamConfigVerbWrite:
		return // no frame, or one whose trailer is still to come
	}
	s.count.framesDone++
	s.count.bytesDone += uint64(p.frameBytes)
}

// configure takes the registers over. On an error it returns the register that
// is refused.
func (s *stream) configure(b block) (refused regs.Reg, ok bool) {
	word := b.get(regs.StreamConfig)
	kind := regs.StreamConfigPattern.Get(word)
	source := regs.StreamConfigSource.Get(word)
	c := streamConfig{
		verb:       regs.StreamConfigVerb.Get(word),
		external:   source == regs.StreamConfigSourceExternal,
		pattern:    pattern.Kind(kind),
		crc:        regs.StreamConfigCRC.Get(word) != 0,
		solicited:  regs.StreamConfigSolicited.Get(word) != 0,
		frameBytes: b.get(regs.StreamFrameBytes),
		slots:      b.get(regs.StreamSlots),
		stride:     b.get(regs.StreamStride),
		base:       b.get64(regs.StreamBase),
		rkey:       b.get(regs.StreamRKey),
		credit:     b.get64(regs.StreamCredit),
		kbps:       b.get(regs.StreamRateKbps),
		burst:      b.get(regs.StreamBurst),
		count:      b.get64(regs.StreamCount),
	}
	reads := c.verb == regs.StreamConfigVerbRead
	if c.verb > regs.StreamConfigVerbRead || kind > regs.StreamConfigPatternPRBS31 ||
		source > regs.StreamConfigSourceExternal || c.external && (reads || s.source == nil) {
		return regs.StreamConfig, false
	}
	sum := uint32(0)
	if c.crc {
		sum = pattern.CRCLen
	}
	if c.frameBytes > s.fabric.cfg.MaxFrameBytes || c.frameBytes < sum ||
		c.external && (c.frameBytes == sum || c.frameBytes-sum > s.source.capacity()) {
		return regs.StreamFrameBytes, false
	}
	if c.verb == regs.StreamConfigVerbSend || c.verb == regs.StreamConfigVerbSendImm {
		c.slots, c.stride, c.base, c.credit = 0, 0, 0, 0
	} else {
		if c.slots == 0 {
			return regs.StreamSlots, false
		}
		least := uint64(c.frameBytes)
		if c.verb == regs.StreamConfigVerbWrite {
			least += trailerBytes
		}
		if c.stride%8 != 0 || uint64(c.stride) < least {
			return regs.StreamStride, false
		}
		// The last byte of the ring must have an address.
		if end, over := bits.Add64(c.base, uint64(c.slots)*uint64(c.stride), 0); over != 0 && end != 0 {
			return regs.Reg(regs.StreamBase), false
		}
		if c.verb == regs.StreamConfigVerbWrite && c.credit%creditBytes != 0 {
			return regs.Reg(regs.StreamCredit), false
		}
	}
	s.cfg = c
	s.state = streamConfigured
	if c.external {
		s.dropped = s.source.Dropped()
		s.source.begin(c.frameBytes - sum)
	}
	return 0, true
}
