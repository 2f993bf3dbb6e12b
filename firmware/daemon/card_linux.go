package daemon

import (
	"context"

	"rocelink/firmware/boot/volume"
	"rocelink/firmware/update"
)

// slots is where the card is mounted while its slots are looked at.
const slots = "/run/rocelink/slots"

func openCard(ctx context.Context, write bool) (update.Card, error) {
	unmount, err := volume.Mount(ctx, volume.Label, slots, write)
	if err != nil {
		return nil, err
	}
	return &update.Folder{Dir: slots, Unmount: unmount}, nil
}
