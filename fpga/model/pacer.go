package model

import (
	"math/bits"
	"time"
)

// pacer spaces frames so that their bytes follow a rate exactly over time: it
// keeps the time at which the next frame is due, with the fraction of a
// nanosecond that integers would lose.
type pacer struct {
	kbps      uint64        // 0: no limit
	tolerance time.Duration // how early a frame may leave: the burst
	slack     time.Duration // how late one may be and the time be caught up

	due      time.Duration
	fraction uint64 // of a nanosecond, in 1/kbps
}

// newPacer paces frames of n bytes from now on.
func newPacer(now, slack time.Duration, kbps, burst uint32, n uint32) pacer {
	p := pacer{kbps: uint64(kbps), slack: slack, due: now}
	if kbps > 0 && burst > 1 {
		cost, _ := p.cost(n)
		hi, lo := bits.Mul64(cost, uint64(burst-1))
		p.tolerance = time.Duration(lo)
		if hi != 0 || lo > uint64(Never)/2 {
			p.tolerance = Never / 2
		}
	}
	return p
}

// cost is the time that n bytes take: 8n bits at kbps·1000 bits a second.
func (p *pacer) cost(n uint32) (ns, fraction uint64) {
	bits := uint64(n) * 8 * 1_000_000
	return bits / p.kbps, bits % p.kbps
}

// wait returns when the next frame may leave; it may at once if that is not
// after now.
func (p *pacer) wait() time.Duration {
	if p.kbps == 0 {
		return 0
	}
	at := p.due
	if p.fraction > 0 {
		at++
	}
	return at - p.tolerance
}

// take accounts for a frame of n bytes that leaves now.
func (p *pacer) take(now time.Duration, n uint32) {
	if p.kbps == 0 {
		return
	}
	if now-p.slack > p.due+1 {
		p.due, p.fraction = now-p.slack, 0
	}
	ns, fraction := p.cost(n)
	p.fraction += fraction
	if p.fraction >= p.kbps {
		p.fraction -= p.kbps
		ns++
	}
	p.due += time.Duration(ns)
}
