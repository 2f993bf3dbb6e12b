package kernel

import (
	"context"
	"errors"
	"fmt"

	"rocelink/firmware/boot"
	"rocelink/firmware/boot/volume"
)

// Volume finds the FAT volume with the label.
func (k *Kernel) Volume(ctx context.Context, label string) (string, error) {
	device, err := volume.Find(ctx, label)
	if errors.Is(err, volume.ErrNone) {
		err = fmt.Errorf("%w: %w", boot.ErrNoVolume, err)
	}
	return device, err
}
