package daemon

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"rocelink"
	"rocelink/boards/slot"
	"rocelink/firmware/board"
	"rocelink/firmware/boot/control"
	"rocelink/firmware/update"
)

// Environment that process 1 of a board gives boardd. Without the first, boardd
// does not run under it.
const (
	envInit    = "ROCELINK_INIT"       // socket of process 1
	envClock   = "ROCELINK_CLOCK"      // file that exists once the clock is right
	envVersion = "ROCELINK_VERSION"    // of the image
	envProblem = "ROCELINK_PROBLEM"    // of the configuration: the senders stay off
	envFaults  = "ROCELINK_FAULTS"     // of the system
	envSlot    = "ROCELINK_SLOT"       // whose image runs: a or b
	envKey     = "ROCELINK_UPDATE_KEY" // file with the key that images are signed with
)

// system is what process 1 tells.
func system(env func(string) string, model string, log *slog.Logger) board.System {
	socket := env(envInit)
	if socket == "" {
		return board.System{}
	}
	s := board.System{
		Machine: machine(socket), Problem: env(envProblem), Faults: env(envFaults), Build: env(envVersion),
	}
	if clock := env(envClock); clock != "" {
		s.ClockSet = func() bool {
			_, err := os.Stat(clock)
			return err == nil
		}
	}
	key, err := readKey(env(envKey))
	if err != nil {
		// Updates are refused then; the board works.
		log.Error("key of updates", "err", err)
	}
	s.Images = update.New(update.Config{Slot: env(envSlot), Model: model, Key: key, Open: openCard})
	return s
}

func readKey(file string) (ed25519.PublicKey, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := slot.ParsePublicKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// machine is process 1 behind its socket.
type machine string

func (m machine) Check(ctx context.Context) error {
	_, err := control.Query(ctx, string(m))
	return err
}

func (m machine) Power(ctx context.Context, action string) error {
	request := map[string]string{rocelink.PowerReboot: control.Reboot, rocelink.PowerOff: control.PowerOff}[action]
	return control.Ask(ctx, string(m), request)
}

func (m machine) Confirm(ctx context.Context) error {
	return control.Ask(ctx, string(m), control.Confirm)
}

func (m machine) OfferTime(ctx context.Context, t time.Time) error {
	return control.Offer(ctx, string(m), t)
}
