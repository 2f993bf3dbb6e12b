// Package devicetree reads, writes and edits flattened device trees. A tree that
// is cut off or contradicts itself is refused; reading never takes more memory
// than the file has.
//
// The format is that of the Devicetree Specification v0.4, chapter 5.
package devicetree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/u-root/u-root/pkg/dt"
)

// ErrFormat means that something is no flattened device tree, or a damaged one.
var ErrFormat = errors.New("not a whole flattened device tree")

// Tokens of the structure block (5.4.1).
const (
	beginNode = 1
	endNode   = 2
	property  = 3
	nop       = 4
	end       = 9
)

const (
	headerBytes = 40
	maxDepth    = 64
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// Parse reads a tree. Values share data's memory. What follows the tree is
// ignored, as boot loaders do.
func Parse(data []byte) (*dt.FDT, error) {
	if len(data) < headerBytes {
		return nil, malformed("%d bytes, the header alone has %d", len(data), headerBytes)
	}
	t := &dt.FDT{}
	if err := binary.Read(bytes.NewReader(data), binary.BigEndian, &t.Header); err != nil {
		return nil, err
	}
	h := t.Header
	switch {
	case h.Magic != dt.Magic:
		return nil, malformed("begins with %#08x, want %#08x", h.Magic, dt.Magic)
	case h.LastCompVersion > 17 || h.Version < 17:
		return nil, malformed("version %d, compatible with %d; want 17", h.Version, h.LastCompVersion)
	case uint64(h.TotalSize) > uint64(len(data)):
		return nil, malformed("%d bytes of %d are there: the file is cut off", len(data), h.TotalSize)
	}
	data = data[:h.TotalSize]
	structure, err := section(data, "structure", h.OffDtStruct, h.SizeDtStruct)
	if err != nil {
		return nil, err
	}
	names, err := section(data, "strings", h.OffDtStrings, h.SizeDtStrings)
	if err != nil {
		return nil, err
	}
	if t.ReserveEntries, err = reservations(data, h.OffMemRsvmap); err != nil {
		return nil, err
	}
	p := parser{data: structure, names: names}
	if t.RootNode, err = p.tree(); err != nil {
		return nil, err
	}
	return t, nil
}

func section(data []byte, name string, offset, size uint32) ([]byte, error) {
	if uint64(offset)+uint64(size) > uint64(len(data)) {
		return nil, malformed("the %s block at %#x of %d bytes passes the end at %d", name, offset, size, len(data))
	}
	return data[offset : offset+size], nil
}

func reservations(data []byte, offset uint32) ([]dt.ReserveEntry, error) {
	r := []dt.ReserveEntry{}
	for at := uint64(offset); ; at += 16 {
		if at+16 > uint64(len(data)) {
			return nil, malformed("the memory reservations at %#x do not end", offset)
		}
		e := dt.ReserveEntry{Address: binary.BigEndian.Uint64(data[at:]), Size: binary.BigEndian.Uint64(data[at+8:])}
		if e == (dt.ReserveEntry{}) {
			return r, nil
		}
		r = append(r, e)
	}
}

// parser walks over the structure block.
type parser struct {
	data, names []byte
	at          int
}

// take returns the next n bytes and skips the padding behind them.
func (p *parser) take(n uint32) ([]byte, error) {
	if uint64(n) > uint64(len(p.data)-p.at) {
		return nil, malformed("the structure block ends within an item at %#x", p.at)
	}
	b := p.data[p.at : p.at+int(n)]
	p.at = min((p.at+int(n)+3)&^3, len(p.data))
	return b, nil
}

func (p *parser) word() (uint32, error) {
	b, err := p.take(4)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b), nil
}

func (p *parser) tree() (*dt.Node, error) {
	var root *dt.Node
	var stack []*dt.Node
	for {
		token, err := p.word()
		if err != nil {
			return nil, err
		}
		switch token {
		case nop:
		case beginNode:
			n := bytes.IndexByte(p.data[p.at:], 0)
			if n < 0 {
				return nil, malformed("the name of the node at %#x does not end", p.at)
			}
			name, err := p.take(uint32(n + 1))
			if err != nil {
				return nil, err
			}
			node := &dt.Node{Name: string(name[:n])}
			switch {
			case len(stack) == maxDepth:
				return nil, malformed("nodes are nested deeper than %d", maxDepth)
			case len(stack) > 0:
				parent := stack[len(stack)-1]
				parent.Children = append(parent.Children, node)
			case root != nil:
				return nil, malformed("two root nodes")
			default:
				root = node
			}
			stack = append(stack, node)
		case endNode:
			if len(stack) == 0 {
				return nil, malformed("a node ends at %#x that did not begin", p.at)
			}
			stack = stack[:len(stack)-1]
		case property:
			if len(stack) == 0 {
				return nil, malformed("a property at %#x outside of all nodes", p.at)
			}
			v, err := p.property()
			if err != nil {
				return nil, err
			}
			node := stack[len(stack)-1]
			node.Properties = append(node.Properties, v)
		case end:
			if root == nil || len(stack) > 0 {
				return nil, malformed("the structure block ends within a node")
			}
			return root, nil
		default:
			return nil, malformed("token %#x at %#x", token, p.at)
		}
	}
}

func (p *parser) property() (v dt.Property, err error) {
	size, err := p.word()
	if err != nil {
		return v, err
	}
	offset, err := p.word()
	if err != nil {
		return v, err
	}
	if offset >= uint32(len(p.names)) {
		return v, malformed("the name of the property at %#x is outside of the strings", p.at)
	}
	n := bytes.IndexByte(p.names[offset:], 0)
	if n < 0 {
		return v, malformed("the name of the property at %#x does not end", p.at)
	}
	v.Name = string(p.names[offset : int(offset)+n])
	v.Value, err = p.take(size)
	return v, err
}

// Write writes a tree in version 17, so that Parse returns the same.
func Write(w io.Writer, t *dt.FDT) error {
	t.Header.Magic, t.Header.Version, t.Header.LastCompVersion = dt.Magic, 17, 16
	_, err := t.Write(w)
	return err
}

// Bytes returns a tree as Write writes it.
func Bytes(t *dt.FDT) ([]byte, error) {
	var b bytes.Buffer
	if err := Write(&b, t); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
