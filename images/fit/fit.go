// Package fit writes and reads FIT images: kernel, device tree and initramfs in
// one file, each with its SHA-256. An image that is read is whole and its hashes
// are right, or there is an error that names the part.
//
// The format is U-Boot's, doc/usage/fit/source_file_format (2023.01): a
// flattened device tree with the parts' data as properties.
package fit

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/u-root/u-root/pkg/dt"

	"rocelink/boards/slot"
	"rocelink/images/devicetree"
)

// Errors of Read.
var (
	// ErrHash means that a part's data are not those that were written.
	ErrHash = errors.New("hash does not match")
	// ErrMissing means that something an image must have is not there.
	ErrMissing = errors.New("missing in the FIT image")
)

// Image is a FIT image with one configuration.
type Image struct {
	Description string
	Model       string    // of the board it is for; "" says nothing of it
	Time        time.Time // to the second
	Kernel      Part      // an arm64 kernel, gzip or none
	DeviceTree  Part
	Ramdisk     Part
}

// Part is a part of an image.
type Part struct {
	Description string
	Data        []byte
	// Gzip says that the boot loader must unpack the data.
	Gzip bool
	// Load is where the boot loader puts it; for a kernel also where it begins.
	Load uint64
}

// Names of the nodes.
const (
	kernelNode  = "kernel"
	treeNode    = "fdt"
	ramdiskNode = "ramdisk"
	configNode  = "conf"
)

// Write writes the image. The same image gives the same bytes.
func (m *Image) Write(w io.Writer) error {
	if s := m.Time.Unix(); s < 0 || s > math.MaxUint32 {
		return fmt.Errorf("FIT image: time %v does not fit into 32 bits of seconds", m.Time)
	}
	var size uint64
	for _, p := range []*Part{&m.Kernel, &m.DeviceTree, &m.Ramdisk} {
		if len(p.Data) == 0 {
			return fmt.Errorf("FIT image: part %q is empty", p.Description)
		}
		size += uint64(len(p.Data))
	}
	if size > dt.MaxTotalSize-1<<20 {
		return fmt.Errorf("FIT image: %d bytes of data, want at most %d", size, dt.MaxTotalSize-1<<20)
	}
	kernel := m.Kernel.node(kernelNode, "kernel")
	kernel.Properties = append(kernel.Properties, dt.PropertyString("os", "linux"), address("entry", m.Kernel.Load))
	ramdisk := m.Ramdisk.node(ramdiskNode, "ramdisk")
	ramdisk.Properties = append(ramdisk.Properties, dt.PropertyString("os", "linux"))
	model := func(*dt.Node) {}
	if m.Model != "" {
		model = dt.WithProperty(dt.PropertyString(slot.ModelProperty, m.Model))
	}
	root := dt.NewNode("",
		dt.WithProperty(
			dt.PropertyString("description", m.Description),
			dt.PropertyU32("timestamp", uint32(m.Time.Unix())),
			dt.PropertyU32("#address-cells", 1),
		),
		model,
		dt.WithChildren(
			dt.NewNode("images", dt.WithChildren(kernel, m.DeviceTree.node(treeNode, "flat_dt"), ramdisk)),
			dt.NewNode("configurations",
				dt.WithProperty(dt.PropertyString("default", configNode)),
				dt.WithChildren(dt.NewNode(configNode, dt.WithProperty(
					dt.PropertyString("description", m.Description),
					dt.PropertyString("kernel", kernelNode),
					dt.PropertyString("fdt", treeNode),
					dt.PropertyString("ramdisk", ramdiskNode),
				)))),
		))
	return devicetree.Write(w, &dt.FDT{RootNode: root})
}

func (p *Part) node(name, kind string) *dt.Node {
	compression := "none"
	if p.Gzip {
		compression = "gzip"
	}
	h := sha256.Sum256(p.Data)
	return dt.NewNode(name,
		dt.WithProperty(
			dt.PropertyString("description", p.Description),
			dt.Property{Name: "data", Value: p.Data},
			dt.PropertyString("type", kind),
			dt.PropertyString("arch", "arm64"),
			dt.PropertyString("compression", compression),
			address("load", p.Load),
		),
		dt.WithChildren(dt.NewNode("hash", dt.WithProperty(
			dt.PropertyString("algo", "sha256"),
			dt.Property{Name: "value", Value: h[:]},
		))))
}

// address is one word, or two above 4 GiB: the boot loader goes by the length.
func address(name string, v uint64) dt.Property {
	if v <= math.MaxUint32 {
		return dt.PropertyU32(name, uint32(v))
	}
	return dt.PropertyU64(name, v)
}

// Read reads an image and checks its hashes. The parts share data's memory.
func Read(data []byte) (*Image, error) {
	t, err := devicetree.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("FIT image: %w", err)
	}
	r := reader{root: t.RootNode}
	m := &Image{Description: r.text(t.RootNode, "description")}
	if p := r.property(t.RootNode, "timestamp"); len(p) == 4 {
		m.Time = time.Unix(int64(binary.BigEndian.Uint32(p)), 0).UTC()
	}
	if p, ok := t.RootNode.LookProperty(slot.ModelProperty); ok {
		m.Model = strings.TrimSuffix(string(p.Value), "\x00")
	}
	images, configs := r.child(t.RootNode, "images"), r.child(t.RootNode, "configurations")
	config := r.child(configs, r.text(configs, "default"))
	m.Kernel = r.part(images, r.text(config, "kernel"), "kernel")
	m.DeviceTree = r.part(images, r.text(config, "fdt"), "flat_dt")
	m.Ramdisk = r.part(images, r.text(config, "ramdisk"), "ramdisk")
	if r.err != nil {
		return nil, fmt.Errorf("FIT image: %w", r.err)
	}
	return m, nil
}

// reader keeps the first error; after it everything is empty.
type reader struct {
	root *dt.Node
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) child(n *dt.Node, name string) *dt.Node {
	if r.err != nil {
		return nil
	}
	c, ok := n.LookupChildByName(name)
	if !ok {
		r.fail(fmt.Errorf("node %q in %q: %w", name, n.Name, ErrMissing))
	}
	return c
}

func (r *reader) property(n *dt.Node, name string) []byte {
	if r.err != nil {
		return nil
	}
	p, ok := n.LookProperty(name)
	if !ok {
		r.fail(fmt.Errorf("property %q of %q: %w", name, n.Name, ErrMissing))
		return nil
	}
	return p.Value
}

func (r *reader) text(n *dt.Node, name string) string {
	return strings.TrimSuffix(string(r.property(n, name)), "\x00")
}

func (r *reader) part(images *dt.Node, name, kind string) (p Part) {
	n := r.child(images, name)
	p.Description = r.text(n, "description")
	p.Data = r.property(n, "data")
	if got := r.text(n, "type"); got != kind {
		r.fail(fmt.Errorf("part %q has type %q, want %q", name, got, kind))
	}
	if got := r.text(n, "arch"); got != "arm64" {
		r.fail(fmt.Errorf("part %q is for %q, want arm64", name, got))
	}
	switch c := r.text(n, "compression"); c {
	case "none":
	case "gzip":
		p.Gzip = true
	default:
		r.fail(fmt.Errorf("part %q: compression %q, want none or gzip", name, c))
	}
	switch b := r.property(n, "load"); len(b) {
	case 4:
		p.Load = uint64(binary.BigEndian.Uint32(b))
	case 8:
		p.Load = binary.BigEndian.Uint64(b)
	default:
		r.fail(fmt.Errorf("part %q: load address of %d bytes", name, len(b)))
	}
	h := r.child(n, "hash")
	if algo := r.text(h, "algo"); algo != "sha256" {
		r.fail(fmt.Errorf("part %q: hash by %q, want sha256", name, algo))
	}
	value := r.property(h, "value")
	if r.err != nil {
		return Part{}
	}
	if sum := sha256.Sum256(p.Data); !bytes.Equal(sum[:], value) {
		r.fail(fmt.Errorf("part %q of %d bytes: SHA-256 %x, want %x: %w", name, len(p.Data), sum, value, ErrHash))
		return Part{}
	}
	return p
}

// Unpacked returns the part's data as the boot loader would load them, of at
// most limit bytes.
func (p *Part) Unpacked(limit int64) ([]byte, error) {
	if !p.Gzip {
		return p.Data, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(p.Data))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", p.Description, err)
	}
	data, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", p.Description, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("unpack %s: more than %d bytes", p.Description, limit)
	}
	return data, nil
}
