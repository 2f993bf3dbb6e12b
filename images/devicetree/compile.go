package devicetree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// ErrNoCompiler means that dtc is not installed.
var ErrNoCompiler = errors.New("dtc is not installed: install device-tree-compiler")

// Compile makes a flattened tree of a source by the device tree compiler. The
// same source gives the same bytes. What the compiler warns of is an error.
func Compile(ctx context.Context, name string, source []byte) ([]byte, error) {
	dtc, err := exec.LookPath("dtc")
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", name, ErrNoCompiler)
	}
	c := exec.CommandContext(ctx, dtc, "-I", "dts", "-O", "dtb", "-o", "-", "-")
	var out, messages bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(source), &out, &messages
	if err := c.Run(); err != nil || messages.Len() > 0 {
		text := strings.ReplaceAll(strings.TrimSpace(messages.String()), "<stdin>", name)
		if err == nil {
			err = errors.New("warnings")
		}
		return nil, fmt.Errorf("compile %s: %w: %s", name, err, text)
	}
	return out.Bytes(), nil
}
