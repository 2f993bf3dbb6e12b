package board

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rocelink/boards"
	"rocelink/bsp/bitstream"
	"rocelink/bsp/fpgamanager"
)

// reloadAfter is after how many looks in vain the bitstream is loaded again.
const reloadAfter = 8

// errLoading: the logic is not there yet, and must not be touched.
var errLoading = errors.New("the bitstream is being loaded")

// loader loads the bitstream before anything touches the logic.
type loader struct {
	done    chan error // of the load under way; nil if there is none
	loaded  bool
	vain    int // looks since
	retryAt time.Time
}

// load reports whether the logic may be touched. It never waits. The caller
// holds mu.
func (b *Board) loadBitstream(now time.Time) error {
	d, l := b.cfg.Description.Bitstream, &b.loader
	if d == nil || l.loaded {
		return nil
	}
	if l.done == nil {
		if now.Before(l.retryAt) {
			return errors.New(b.missing) // what went wrong
		}
		l.done = make(chan error, 1)
		if !b.background {
			l.done <- b.cfg.Load(*d)
		} else {
			done := l.done
			b.watching.Go(func() { done <- b.cfg.Load(*d) })
		}
	}
	select {
	case err := <-l.done:
		l.done = nil
		if err != nil {
			l.retryAt = now.Add(lastBackoff)
			return fmt.Errorf("load the bitstream: %w", err)
		}
		l.loaded, l.vain = true, 0
		b.emit("bitstream-loaded", "%s", d.File)
		return nil
	default:
		return fmt.Errorf("%s: %w", d.File, errLoading)
	}
}

// notLoaded counts a look at the fabric in vain: what runs is not what was
// loaded, or it was taken away.
func (l *loader) notLoaded() {
	if l.vain++; l.vain >= reloadAfter {
		l.loaded = false
	}
}

// loadImage loads a bitstream by the kernel's fpga_manager: the vendor's takes
// the image, mainline an overlay that names it among the firmware files.
func loadImage(d boards.Bitstream) error {
	data, err := os.ReadFile(d.File)
	if err != nil {
		return err
	}
	info, err := bitstream.Inspect(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%s: %w", d.File, err)
	}
	name := strings.TrimSuffix(filepath.Base(d.File), filepath.Ext(d.File)) + ".bin"
	if d.Overlay == "" {
		return fpgamanager.Manager{}.Load(name, bytes.NewReader(data), fpgamanager.Options{Encrypted: info.Encrypted})
	}
	overlay, err := os.ReadFile(d.Overlay)
	if err != nil {
		return err
	}
	image, err := bitstream.NewReader(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%s: %w", d.File, err)
	}
	if err := store(filepath.Join(firmwareFolder, name), image); err != nil {
		return err
	}
	return fpgamanager.Manager{}.LoadRegion("rocelink", overlay)
}

// firmwareFolder is where the kernel looks for images.
const firmwareFolder = "/lib/firmware"

// store writes a file whole or not at all.
func store(name string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".image-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
