package board

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"rocelink"
	"rocelink/firmware/update"
)

// Machine is process 1 of the computer that the board runs on.
type Machine interface {
	// Check tells whether the end of the machine's run can be asked for.
	Check(ctx context.Context) error
	// Power asks for it: rocelink.PowerReboot or PowerOff. It does not wait.
	Power(ctx context.Context, action string) error
	// Confirm tells that the image that runs works.
	Confirm(ctx context.Context) error
	// OfferTime gives the time by a clock that may be right, for a machine that
	// has no better one.
	OfferTime(ctx context.Context, t time.Time) error
}

// System is what a board knows of the computer that it runs on. The zero value is
// one that is not ours.
type System struct {
	// Machine is nil where nobody can restart the computer.
	Machine Machine
	// Problem is what is wrong with the configuration: the senders stay off.
	Problem string
	// Faults are of the system, for a person.
	Faults string
	// Build is the identifier of the boot image.
	Build string
	// Images are the board's two boot images; nil: it booted none of ours.
	Images *update.Store
	// ClockSet tells whether the clock is right: no certificate can be checked
	// before. Nil: it is.
	ClockSet func() bool
}

const (
	// clockWait is how long TLS waits for the clock; after it the connection is
	// tried all the same, and what is wrong with the certificate is said.
	clockWait = 2 * time.Minute
	clockLook = 100 * time.Millisecond
	powerTime = 5 * time.Second
)

// machineEndpoints are answered without holding up the hardware.
var machineEndpoints = map[string]func(*uplink, micro.Request) (any, error){
	rocelink.EndpointPower:        (*uplink).power,
	rocelink.EndpointUpdateBegin:  (*uplink).updateBegin,
	rocelink.EndpointUpdateWrite:  (*uplink).updateWrite,
	rocelink.EndpointUpdateFinish: (*uplink).updateFinish,
	rocelink.EndpointUpdateAbort:  (*uplink).updateAbort,
}

// machine answers a request about the machine.
func (u *uplink) machine(endpoint string, r micro.Request) ([]byte, error) {
	reply, err := machineEndpoints[endpoint](u, r)
	if err != nil {
		u.log.Info("refused", "endpoint", endpoint, "err", err)
		var e *rocelink.Error
		if !errors.As(err, &e) {
			e = rocelink.Refuse(rocelink.CodeFailed, "%s: %v", endpoint, err)
		}
		return nil, e
	}
	return json.Marshal(reply)
}

// withheld refuses to send while the configuration is broken.
func (b *Board) withheld(endpoint string) error {
	if p := b.cfg.System.Problem; p != "" && (endpoint == rocelink.EndpointOpen || endpoint == rocelink.EndpointStart) {
		return rocelink.Refuse(rocelink.CodeNoFabric, "%s: the senders stay off until the board's configuration is mended: %s", endpoint, p)
	}
	return nil
}

// describe adds what is known of the machine. The caller holds mu.
func (b *Board) describe(s *rocelink.BoardStatus) {
	y := &b.cfg.System
	s.Problem = y.Problem
	if y.Build == "" && y.Images == nil {
		return
	}
	i := rocelink.Image{}
	if y.Images != nil {
		i = y.Images.Image()
	}
	i.Build = y.Build
	s.Image = &i
}

// tellSystem logs what is wrong with the machine.
func (b *Board) tellSystem() {
	if p := b.cfg.System.Problem; p != "" {
		b.log.Error("the senders stay off", "problem", p)
	}
	if f := b.cfg.System.Faults; f != "" {
		b.log.Warn("the system is not in order", "faults", f)
	}
}

// tell emits it. An event before the first connection would be heard by nobody.
func (u *uplink) tell(i rocelink.Image) {
	y := &u.board.cfg.System
	if y.Problem != "" {
		u.event(u.own("configuration-problem", "the senders stay off: %s", y.Problem))
	}
	if y.Faults != "" {
		u.event(u.own("system-fault", "%s", y.Faults))
	}
	if i.FellBack {
		u.event(u.own("image-fell-back", "%s", i.Problem))
	}
}

// power ends the machine's run: the streams are closed, the reply is on its way,
// and then process 1 is asked.
func (u *uplink) power(r micro.Request) (any, error) {
	b := u.board
	var q rocelink.PowerRequest
	if err := decode(r.Data(), &q); err != nil {
		return nil, err
	}
	if q.Action != rocelink.PowerReboot && q.Action != rocelink.PowerOff {
		return nil, rocelink.Refuse(rocelink.CodeBadRequest, "power: action %.40q: want %s or %s", q.Action, rocelink.PowerReboot, rocelink.PowerOff)
	}
	m := b.cfg.System.Machine
	if m == nil {
		return nil, rocelink.Refuse(rocelink.CodeUnsupported, "power: boardd does not run under the board's own process 1")
	}
	ctx, cancel := context.WithTimeout(context.Background(), powerTime)
	defer cancel()
	if err := m.Check(ctx); err != nil {
		return nil, rocelink.Refuse(rocelink.CodeFailed, "power: %v", err)
	}
	b.mu.Lock()
	b.streams.CloseAll("the board goes down: "+q.Action, drainTime, b.cfg.Sleep)
	b.emit("power", "%s, asked for: %.200q", q.Action, q.Reason)
	b.mu.Unlock()
	// Once the reply has left.
	u.done.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), powerTime)
		defer cancel()
		if nc := u.conn(); nc != nil {
			if err := nc.FlushWithContext(ctx); err != nil {
				u.log.Warn("flush the reply", "err", err)
			}
		}
		if err := m.Power(ctx, q.Action); err != nil {
			u.event(u.own("power-failed", "%s: %v", q.Action, err))
		}
	})
	return rocelink.PowerReply{Version: rocelink.Version, Action: q.Action}, nil
}

func (u *uplink) conn() *nats.Conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.nc
}

// awaitClock waits, where TLS needs it, until the clock is right.
func (u *uplink) awaitClock(ctx context.Context) {
	set := u.board.cfg.System.ClockSet
	if set == nil || set() || !usesTLS(u.board.cfg.NATS) {
		return
	}
	u.log.Info("nats: TLS waits until the clock is right", "at-most", clockWait)
	limit := time.NewTimer(clockWait)
	defer limit.Stop()
	look := time.NewTicker(clockLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-limit.C:
			u.log.Warn("nats: the clock is not set: a certificate may be refused", "waited", clockWait)
			return
		case <-look.C:
			if set() {
				return
			}
		}
	}
}

// usesTLS tells whether a certificate will have to be checked.
func usesTLS(a *rocelink.Access) bool {
	if a.CA != "" || a.Cert != "" {
		return true
	}
	for s := range strings.SplitSeq(a.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(s)); err == nil && (u.Scheme == "tls" || u.Scheme == "wss") {
			return true
		}
	}
	return false
}
