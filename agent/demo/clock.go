package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/agent/stream"
)

// boardMHz is the core's clock on a board.
const boardMHz = 250

// Clock compares the clock of a core in simulation with real time.
type Clock struct {
	KHz     uint64  `json:"khz"`    // of the core
	Cycles  uint64  `json:"cycles"` // that passed
	Seconds float64 `json:"seconds"`

	uptime uint64
	at     time.Time
}

// sample adds what has passed since the last one. A fabric that does not answer
// is looked at the next time.
func (c *Clock) sample(nc *nats.Conn) {
	kHz, ok := register(nc, "ClockKHz")
	uptime, ok2 := register(nc, "Uptime")
	now := time.Now()
	if !ok || !ok2 {
		return
	}
	if !c.at.IsZero() {
		if uptime < c.uptime {
			c.uptime = 0 // it was started again
		}
		c.Cycles += uptime - c.uptime
		c.Seconds += now.Sub(c.at).Seconds()
	}
	c.KHz, c.uptime, c.at = kHz, uptime, now
}

// register reads a register of the core.
func register(nc *nats.Conn, name string) (uint64, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), sampleLimit)
	defer cancel()
	var r rocelink.RegisterReply
	err := stream.Request(ctx, nc, boardName, rocelink.EndpointReadRegister, rocelink.RegisterRequest{Version: rocelink.Version, Block: "Core", Register: name}, &r)
	return uint64(r.Value), err == nil
}

// write says it in words, if anything was seen.
func (c *Clock) write(w io.Writer) {
	if c.Seconds == 0 || c.KHz == 0 {
		return
	}
	second := float64(c.Cycles) / c.Seconds // cycles
	fmt.Fprintf(w, "core's clock: %d cycles at %d kHz in %.1f s: 1 s of the demo was %.0f ms of it, %.3f ms of a board's at %d MHz\n",
		c.Cycles, c.KHz, c.Seconds, second/float64(c.KHz), second/boardMHz/1e3, boardMHz)
}
