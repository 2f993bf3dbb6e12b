package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
)

// ErrNoBoard: no board of that name answers at this NATS server.
var ErrNoBoard = errors.New("board does not answer")

const requestLimit = 2 * time.Second

// errorHeader and textHeader are how a NATS micro service says that it
// refused (NATS ADR-32).
const (
	errorHeader = "Nats-Service-Error-Code"
	textHeader  = "Nats-Service-Error"
)

// Request asks an endpoint of a board and decodes the reply into reply; a nil
// request is an empty one, a nil reply is not looked at. A
// refusal is a *rocelink.Error; a board that is not there is ErrNoBoard.
func Request(ctx context.Context, nc *nats.Conn, board, endpoint string, request, reply any) error {
	var data []byte
	if request != nil {
		var err error
		if data, err = json.Marshal(request); err != nil {
			return fmt.Errorf("%s at board %s: encode: %w", endpoint, board, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, rocelink.RequestSubject(board, endpoint), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%s at board %s: %w: is boardd running and connected to this server?", endpoint, board, ErrNoBoard)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%s at board %s: no answer within %v: %w", endpoint, board, requestLimit, ErrNoBoard)
	case err != nil:
		return fmt.Errorf("%s at board %s: %w", endpoint, board, err)
	}
	if code := m.Header.Get(errorHeader); code != "" {
		return fmt.Errorf("%s at board %s: %w", endpoint, board, &rocelink.Error{Code: rocelink.Code(code), Text: m.Header.Get(textHeader)})
	}
	if reply == nil {
		return nil
	}
	if err := rocelink.Decode(m.Data, reply); err != nil {
		return fmt.Errorf("%s at board %s: reply: %w", endpoint, board, err)
	}
	return nil
}
