package slot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Errors of CheckImage.
var (
	// ErrImage means that a file is no FIT image, or not a whole one.
	ErrImage = errors.New("not a whole FIT image")
	// ErrBoard means that an image is for another board.
	ErrBoard = errors.New("an image for another board")
)

// ModelProperty of a FIT image's root names the model of the board it is for.
const ModelProperty = "rocelink,model"

// Tokens of a flattened device tree (Devicetree Specification 0.4, 5.4).
const (
	fdtMagic     = 0xd00dfeed
	fdtBeginNode = 1
	fdtEndNode   = 2
	fdtProperty  = 3
	fdtNop       = 4
	fdtEnd       = 9
)

// maxNode bounds names of nodes and properties, and values that are kept.
const maxNode = 256

// walker reads the structure of a FIT image without holding its parts.
type walker struct {
	r       io.ReaderAt
	at, end int64 // of the structure
	names   []byte
}

// CheckImage reads a FIT image of size bytes: that it is whole, that the hash of
// each part is right, and that it is for a board of the model.
func CheckImage(r io.ReaderAt, size int64, model string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrImage)
	}
	header := make([]byte, 40)
	if _, err := r.ReadAt(header, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the image: %w", err)
	}
	word := func(n int) int64 { return int64(binary.BigEndian.Uint32(header[4*n:])) }
	if word(0) != fdtMagic {
		return fail("it begins with %#08x, want %#08x", word(0), uint32(fdtMagic))
	}
	if word(1) != size {
		return fail("%d bytes of the %d in its header", size, word(1))
	}
	structure, text, textSize, structSize := word(2), word(3), word(8), word(9)
	if structure+structSize > size || text+textSize > size || textSize > 1<<20 {
		return fail("its header does not fit into %d bytes", size)
	}
	w := walker{r: r, at: structure, end: structure + structSize, names: make([]byte, textSize)}
	if _, err := r.ReadAt(w.names, text); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the image: %w", err)
	}
	parts, got, err := w.walk()
	switch {
	case err != nil:
		return err
	case parts < 2:
		return fail("%d parts with a hash, want a kernel and more", parts)
	case got != model:
		return fmt.Errorf("for model %.64q, this board is %.64q: %w", got, model, ErrBoard)
	}
	return nil
}

// level is a node that is open.
type level struct {
	name       string
	data, size int64 // of its property data; size -1: none
	algo       string
	value      []byte
}

// walk reads all nodes. A node with data must have a node below it whose name
// begins with hash, which follows the data.
func (w *walker) walk() (parts int, model string, err error) {
	var open []level
	for {
		token, err := w.word()
		if err != nil {
			return 0, "", err
		}
		switch token {
		case fdtNop:
		case fdtBeginNode:
			name, err := w.name()
			if err != nil {
				return 0, "", err
			}
			if len(open) > 8 {
				return 0, "", w.fail("nodes too deep")
			}
			open = append(open, level{name: name, size: -1})
		case fdtProperty:
			if len(open) == 0 {
				return 0, "", w.fail("a property outside of any node")
			}
			n := &open[len(open)-1]
			name, at, size, err := w.property()
			if err != nil {
				return 0, "", err
			}
			switch {
			case name == "data":
				n.data, n.size = at, size
			case size > maxNode:
			case name == "algo":
				v, err := w.bytes(at, size)
				if err != nil {
					return 0, "", err
				}
				n.algo = text(v)
			case name == "value":
				if n.value, err = w.bytes(at, size); err != nil {
					return 0, "", err
				}
			case name == ModelProperty && len(open) == 1:
				v, err := w.bytes(at, size)
				if err != nil {
					return 0, "", err
				}
				model = text(v)
			}
		case fdtEndNode:
			if len(open) == 0 {
				return 0, "", w.fail("a node ends that did not begin")
			}
			n := open[len(open)-1]
			open = open[:len(open)-1]
			if len(open) > 0 && n.algo == "sha256" && open[len(open)-1].size >= 0 {
				if err := w.hash(open[len(open)-1], n.value); err != nil {
					return 0, "", err
				}
				parts++
			}
		case fdtEnd:
			if len(open) != 0 {
				return 0, "", w.fail("it ends within a node")
			}
			return parts, model, nil
		default:
			return 0, "", w.fail(fmt.Sprintf("token %d", token))
		}
	}
}

func (w *walker) fail(what string) error {
	return fmt.Errorf("structure at byte %d: %s: %w", w.at, what, ErrImage)
}

func (w *walker) bytes(at, size int64) ([]byte, error) {
	b := make([]byte, size)
	if n, err := w.r.ReadAt(b, at); n < len(b) {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	return b, nil
}

func (w *walker) word() (uint32, error) {
	if w.at+4 > w.end {
		return 0, w.fail("it is cut off")
	}
	b, err := w.bytes(w.at, 4)
	if err != nil {
		return 0, err
	}
	w.at += 4
	return binary.BigEndian.Uint32(b), nil
}

func (w *walker) name() (string, error) {
	b, err := w.bytes(w.at, min(maxNode, w.end-w.at))
	if err != nil {
		return "", err
	}
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		return "", w.fail("a name without end")
	}
	w.at += int64(n+1+3) &^ 3
	return string(b[:n]), nil
}

func (w *walker) property() (name string, at, size int64, err error) {
	length, err := w.word()
	if err != nil {
		return "", 0, 0, err
	}
	where, err := w.word()
	if err != nil {
		return "", 0, 0, err
	}
	at, size = w.at, int64(length)
	if at+size > w.end {
		return "", 0, 0, w.fail("a property is cut off")
	}
	w.at += (size + 3) &^ 3
	if int64(where) >= int64(len(w.names)) {
		return "", 0, 0, w.fail("a property has no name")
	}
	return text(w.names[where:]), at, size, nil
}

// text is what comes before the first zero.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func (w *walker) hash(part level, want []byte) error {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(w.r, part.data, part.size)); err != nil {
		return fmt.Errorf("read the image: %w", err)
	}
	if got := h.Sum(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("part %.40q: SHA-256 %x, want %x: %w", part.name, got, want, ErrImage)
	}
	return nil
}
