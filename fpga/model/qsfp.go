package model

import (
	"encoding/binary"
	"math"
	"time"
)

// The memory of a QSFP28 by SFF-8636 rev 2.10a: lower page, upper page 00h with the
// identity and page 03h with the thresholds.
const (
	memStatus    = 2 // bit 1: IntL is high; bit 2: flat memory
	memLOS       = 3
	memLOL       = 5
	memTempFlags = 6 // bit 0: initialization complete
	memVccFlags  = 7
	memRxFlags   = 9
	memBiasFlags = 11
	memTxFlags   = 13
	memFlagsEnd  = 15
	memTemp      = 22
	memVcc       = 26
	memRxPower   = 34
	memBias      = 42
	memTxPower   = 50
	memTxDisable = 86
	memPower     = 93
	memCDR       = 98
	memMasks     = 100 // of the flags 3 to 7
	memMasksEnd  = 105
	memPage      = 127
	halfBytes    = 128
	checkBase    = 191 - halfBytes
	checkExt     = 223 - halfBytes

	powerOverride = 1 << 0
	powerLow      = 1 << 1
	initComplete  = 1 << 0
	statusIntL    = 1 << 1

	pageIdentity   = 0
	pageThresholds = 3
	// maxWrite is how many bytes behind the register one write may have (SFF-8636,
	// sequential bytes write).
	maxWrite = 4
)

const (
	// moduleStart is how long the module takes from power or reset until it
	// answers; SFF-8679 allows 2 s.
	moduleStart = 300 * time.Millisecond
	// warmUp is the time constant of its temperature, between these.
	warmUp = 60 * time.Second
	// measureEvery is how often it looks for what its flags tell, though nobody asks.
	measureEvery = 50 * time.Millisecond
	coldC        = 25.0
	warmC        = 41.5
	hotC         = 81.0
	supplyV      = 3.29
	laneBias     = 6.6 // mA
	driftTime    = 17 * time.Second
)

// limitsOf are the thresholds: high alarm, low alarm, high warning, low warning.
type limitsOf [4]float64

var (
	limitC    = limitsOf{75, -5, 70, 0}
	limitV    = limitsOf{3.63, 2.97, 3.465, 3.135}
	limitRx   = limitsOf{3.4674, 0.0251, 2.1878, 0.0631} // mW
	limitBias = limitsOf{12, 2, 10, 3}
	limitTx   = limitsOf{3.4674, 0.0631, 2.1878, 0.1}
	lightRx   = [opticalLanes]float64{0.92, 0.87, 0.95, 0.9}
	lightTx   = [opticalLanes]float64{1.05, 1.1, 1.02, 1.08}
)

// flags is which thresholds a value is beyond: a nibble, high alarm first.
func (l limitsOf) flags(v float64) (f byte) {
	for i, beyond := range [...]bool{v > l[0], v < l[1], v > l[2], v < l[3]} {
		if beyond {
			f |= 8 >> i
		}
	}
	return f
}

// qsfp is a 100GBASE-SR4 module.
type qsfp struct {
	low     [halfBytes]byte // controls as they are, values as last measured
	up      [halfBytes]byte
	limits  [halfBytes]byte
	pointer byte

	present bool
	held    bool          // in reset
	powered time.Duration // since when
	ready   time.Duration // when it answers

	stale    bool // measure again
	measured time.Duration
	around   surroundings // then
}

func put16(b []byte, v float64) {
	binary.BigEndian.PutUint16(b, uint16(int32(math.Round(v))))
}

func putText(b []byte, s string) {
	for i := copy(b, s); i < len(b); i++ {
		b[i] = ' '
	}
}

// newQSFP is a module that has been plugged and up for some time.
func newQSFP() (q qsfp) {
	q.present = true
	up := q.up[:]
	up[0] = 0x11                                     // QSFP28
	up[129-halfBytes] = 0x8C                         // power class 3, CDR in both directions
	up[130-halfBytes] = 0x0C                         // MPO 1x12
	up[131-halfBytes] = 0x80                         // see byte 192
	up[140-halfBytes], up[222-halfBytes] = 0xFF, 103 // 25.75 GBd
	up[143-halfBytes], up[146-halfBytes] = 35, 50    // OM3, OM4 in 2 m
	putText(up[148-halfBytes:164-halfBytes], "ROCELINK")
	up[165-halfBytes] = 0x02 // an address of local administration
	putText(up[168-halfBytes:184-halfBytes], "SOFT-SR4")
	putText(up[184-halfBytes:186-halfBytes], "A")
	put16(up[186-halfBytes:], 850*20)
	put16(up[188-halfBytes:], 10*200)
	up[190-halfBytes] = 70   // °C
	up[192-halfBytes] = 0x02 // 100GBASE-SR4
	up[194-halfBytes] = 0x30 // Tx and Rx loss of lock
	up[195-halfBytes] = 0x1A // Tx disable, Tx fault, loss of signal
	putText(up[196-halfBytes:212-halfBytes], "SIM00000001")
	putText(up[212-halfBytes:220-halfBytes], "260101")
	up[220-halfBytes] = 0x3C // all is monitored, Rx power is an average
	up[221-halfBytes] = 0x10 // tells that initialization is complete
	up[checkBase] = sum8(up[:checkBase])
	up[checkExt] = sum8(up[checkBase+1 : checkExt])
	for _, t := range []struct {
		at    int
		of    limitsOf
		scale float64
	}{{128, limitC, 256}, {144, limitV, 1e4}, {176, limitRx, 1e4}, {184, limitBias, 500}, {192, limitTx, 1e4}} {
		for i, v := range t.of {
			put16(q.limits[t.at-halfBytes+2*i:], v*t.scale)
		}
	}
	q.restart()
	return q
}

func sum8(b []byte) (s byte) {
	for _, v := range b {
		s += v
	}
	return s
}

// restart is what power and reset do to the memory.
func (q *qsfp) restart() {
	q.low = [halfBytes]byte{0: 0x11, 1: 0x08, memCDR: 0xFF, memTempFlags: initComplete}
	q.pointer, q.stale = 0, true
}

// surroundings is what the module finds.
type surroundings struct {
	present bool
	reset   bool
	lpMode  bool
	dark    uint8 // lanes on which no light arrives
	noLock  bool  // light of another rate
	txOff   uint8 // lanes switched off by something else than its register
	hot     bool
}

// poll is the module at a time. It returns when it wants to be polled again.
func (q *qsfp) poll(now time.Duration, s surroundings) (deadline time.Duration) {
	if s.present != q.present {
		q.present = s.present
		q.restart()
		q.powered, q.ready = now, now+moduleStart
	}
	if s.reset != q.held {
		q.held = s.reset
		q.restart()
		q.ready = now + moduleStart
	}
	if !q.answers(now) {
		if q.present && !q.held {
			return q.ready
		}
		return Never
	}
	if q.stale || s != q.around || now-q.measured >= measureEvery {
		q.stale, q.around, q.measured = false, s, now
		q.measure(now, s)
	}
	return Never
}

// answers reports whether the module is up.
func (q *qsfp) answers(now time.Duration) bool { return q.present && !q.held && now >= q.ready }

// low power, which its register decides if it says so, and the line else.
func (q *qsfp) lowPower(s surroundings) bool {
	if q.low[memPower]&powerOverride != 0 {
		return q.low[memPower]&powerLow != 0
	}
	return s.lpMode
}

// sends is the lanes whose transmitters are on.
func (q *qsfp) sends(now time.Duration, s surroundings) uint8 {
	if !q.answers(now) || q.lowPower(s) {
		return 0
	}
	return alignmentMarkerLanes &^ (q.low[memTxDisable] | s.txOff)
}

// receives is the lanes on which the module passes on what arrives.
func (q *qsfp) receives(now time.Duration, s surroundings) uint8 {
	if !q.answers(now) || q.lowPower(s) {
		return 0
	}
	return alignmentMarkerLanes &^ s.dark
}

// drift is between -1 and 1, slowly, and different for each n.
func drift(now time.Duration, n int) float64 {
	return math.Sin(2*math.Pi*now.Seconds()/driftTime.Seconds() + float64(n))
}

// measure brings the values up to date and latches the flags.
func (q *qsfp) measure(now time.Duration, s surroundings) {
	low := q.low[:]
	t := warmC - (warmC-coldC)*math.Exp(-(now-q.powered).Seconds()/warmUp.Seconds())
	if s.hot {
		t = hotC
	}
	t += 0.2 * drift(now, 0)
	v := supplyV + 0.004*drift(now, 1)
	put16(low[memTemp:], t*256)
	put16(low[memVcc:], v*1e4)
	low[memTempFlags] |= limitC.flags(t) << 4
	low[memVccFlags] |= limitV.flags(v) << 4
	sends := q.sends(now, s)
	for n := range opticalLanes {
		rx, tx, bias := lightRx[n]*(1+0.01*drift(now, n)), lightTx[n]*(1+0.01*drift(now, 4+n)), laneBias+0.1*drift(now, 8+n)
		nibble := 4 * (1 - n%2) // the lower lane of a byte is in the high nibble
		if s.dark>>n&1 != 0 {
			rx = 0
			low[memLOS] |= 1 << n
		}
		if s.dark>>n&1 != 0 || s.noLock {
			low[memLOL] |= 1 << n
		}
		if sends>>n&1 == 0 {
			tx, bias = 0, 0
		} else {
			low[memBiasFlags+n/2] |= limitBias.flags(bias) << nibble
			low[memTxFlags+n/2] |= limitTx.flags(tx) << nibble
		}
		low[memRxFlags+n/2] |= limitRx.flags(rx) << nibble
		put16(low[memRxPower+2*n:], rx*1e4)
		put16(low[memBias+2*n:], bias*500)
		put16(low[memTxPower+2*n:], tx*1e4)
	}
	low[memStatus] = statusIntL
	if q.interrupts() {
		low[memStatus] = 0
	}
}

// interrupts reports whether IntL is asserted: a flag is latched, and not masked.
func (q *qsfp) interrupts() bool {
	for i := memLOS; i < memFlagsEnd; i++ {
		mask := byte(0)
		if m := memMasks + i - memLOS; m < memMasksEnd {
			mask = q.low[m]
		}
		if q.low[i]&^mask != 0 {
			return true
		}
	}
	return false
}
