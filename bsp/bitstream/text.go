package bitstream

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Text writes the information for people.
func (i Info) Text(w io.Writer) error {
	b := bufio.NewWriter(w)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-14s: %s\n", name, fmt.Sprintf(format, args...))
	}
	optional := func(name, value string) {
		if value != "" {
			line(name, "%s", value)
		}
	}
	line("Format", "%s", map[Format]string{
		Bit: ".bit, configuration data with a header", Bin: ".bin, configuration data alone", PDI: ".pdi, a Versal programmable device image",
	}[i.Format])
	if h := i.Header; h != nil {
		line("Design", "%s", h.Design)
		line("Part", "%s", h.Part)
		line("Built", "%s %s", h.Date, h.Time)
		optional("Vivado", h.Version)
		optional("User ID", h.UserID)
		optional("Software CRC", h.CRC)
		optional("Options", strings.Join(h.Options, ", "))
	}
	switch {
	case i.IDCode == 0:
		line("Device", "not named by the data")
	case i.Device == "":
		line("Device", "unknown IDCODE %s", i.IDCode)
	default:
		line("Device", "%s (IDCODE %s)", i.Device, i.IDCode)
	}
	if c := i.Config; c != nil {
		order := "AA 99 55 66; fpga_manager wants the words swapped"
		if c.ByteOrder == Swapped {
			order = "66 55 99 AA, as fpga_manager takes it"
		}
		line("Byte order", "%s", order)
		line("Frames", "%d words in %d writes%s", c.FrameWords, c.FrameWrites, map[bool]string{true: ", compressed"}[c.Compressed])
		if c.Partial {
			line("Partial", "yes")
		}
		if c.CRC != 0 {
			line("CRC", "%s (not computed here)", c.CRC)
		}
		if c.UserAccess != 0 {
			line("USR_ACCESS", "%s", c.UserAccess)
		}
	}
	if p := i.PDI; p != nil {
		line("Kind", "%s", p.Kind)
		line("Table version", "%s", p.Version)
		line("ID", "%s, parent %s", p.ID, p.Parent)
		line("Checksums", "%s", map[bool]string{true: "ok", false: "WRONG"}[p.ChecksumOK])
		line("Partitions", "%d", p.Partitions)
		for _, s := range p.Images {
			line("Image", "%s (id %s, unique id %s, parent %s)", s.Name, s.ID, s.UniqueID, s.ParentID)
		}
	}
	line("Encrypted", "%s", map[bool]string{true: "yes", false: "no"}[i.Encrypted])
	line("Size", "%d bytes", i.Size)
	line("SHA-256", "%s", i.SHA256)
	for _, p := range i.Problems {
		fmt.Fprintf(b, "Note: %s\n", p)
	}
	return b.Flush()
}
