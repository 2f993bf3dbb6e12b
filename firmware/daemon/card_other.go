//go:build !linux

package daemon

import (
	"context"
	"errors"

	"rocelink/firmware/update"
)

func openCard(context.Context, bool) (update.Card, error) { return nil, errors.ErrUnsupported }
