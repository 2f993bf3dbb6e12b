package boards

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rocelink/fpga/roce"
)

// Space a block needs behind its offset: the RoCE chain has two blocks of 0x400
// bytes at 0x1000 apart, the CMAC decodes 8 KiB (fpga/regs).
const (
	roceSpan = 0x1400
	macSpan  = 0x2000
	maxSize  = 1 << 32
)

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", field, fmt.Sprintf(format, args...), ErrInvalid)
}

func oneOf(field, value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return invalid(field, "%q, want one of %s", value, strings.Join(allowed, ", "))
	}
	return nil
}

// Check finds what contradicts itself or is missing. The error names the field
// and matches ErrInvalid.
func (b *Board) Check() error {
	if b.Model == "" || len(b.Model) > 64 {
		return invalid("model", "%d bytes, want 1 to 64", len(b.Model))
	}
	if err := oneOf("soc", b.SoC, "zynqmp", "versal", "none"); err != nil {
		return err
	}
	if b.SoC != "none" && b.Device == "" {
		return invalid("device", "missing: give the part number")
	}
	if len(b.Apertures) == 0 {
		return invalid("apertures", "none")
	}
	seen := map[string]bool{}
	for i, a := range b.Apertures {
		field := fmt.Sprintf("apertures[%d]", i)
		switch {
		case a.Name == "" || seen[a.Name]:
			return invalid(field+".name", "%q is empty or used twice", a.Name)
		case a.Base%4 != 0:
			return invalid(field+".base", "%#x is not a multiple of 4", a.Base)
		case a.Size == 0 || a.Size%4 != 0 || a.Size > maxSize:
			return invalid(field+".size", "%#x, want a multiple of 4 up to %#x", a.Size, uint64(maxSize))
		case a.Base+a.Size-1 < a.Base:
			return invalid(field+".base", "%#x + %#x passes the end of the address space", a.Base, a.Size)
		}
		seen[a.Name] = true
	}
	if err := b.checkBlock("roce", b.RoCE, roceSpan); err != nil {
		return err
	}
	mac := Block{b.MAC.Aperture, b.MAC.Offset}
	if err := b.checkBlock("mac", mac, macSpan); err != nil {
		return err
	}
	if b.RoCE.Aperture == mac.Aperture &&
		uint64(b.RoCE.Offset) < uint64(mac.Offset)+macSpan && uint64(mac.Offset) < uint64(b.RoCE.Offset)+roceSpan {
		return invalid("mac.offset", "%#x overlaps the RoCE core at %#x", mac.Offset, b.RoCE.Offset)
	}
	if b.MAC.Driver == "" && !b.isUnknown("mac.driver") {
		return invalid("mac.driver", "missing")
	}
	if err := oneOf("mac.fec", b.MAC.FEC, FECNone, FECOff, FECRS); err != nil {
		return err
	}
	if err := b.Network.check(); err != nil {
		return err
	}
	if err := b.checkHardware(); err != nil {
		return err
	}
	if err := b.checkOrigin(); err != nil {
		return err
	}
	return b.checkBoot()
}

func (b *Board) checkBlock(field string, k Block, span uint64) error {
	a, ok := b.Aperture(k.Aperture)
	switch {
	case !ok:
		return invalid(field+".aperture", "%q is not among the apertures", k.Aperture)
	case k.Offset%4 != 0:
		return invalid(field+".offset", "%#x is not a multiple of 4", k.Offset)
	case uint64(k.Offset)+span > a.Size:
		return invalid(field+".offset", "%#x + %#x bytes end after aperture %s of %#x", k.Offset, span, a.Name, a.Size)
	}
	return nil
}

func (n Network) check() error {
	if err := oneOf("network.mac.source", n.MAC.Source, SourceFixed, SourceName, SourceFlag); err != nil {
		return err
	}
	if n.MAC.Source == SourceFixed {
		if m, err := roce.ParseMAC(n.MAC.Value); err != nil {
			return invalid("network.mac.value", "%v", err)
		} else if !m.IsUnicast() {
			return invalid("network.mac.value", "%v is no unicast address", m)
		}
	} else if n.MAC.Value != "" {
		return invalid("network.mac.value", "%q is given, but the source is %q", n.MAC.Value, n.MAC.Source)
	}
	if err := oneOf("network.address.source", n.Address.Source, SourceFixed, SourceFlag); err != nil {
		return err
	}
	if n.Address.Source == SourceFixed {
		if a, err := netip.ParseAddr(n.Address.Value); err != nil {
			return invalid("network.address.value", "%v", err)
		} else if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
			return invalid("network.address.value", "%v is no address of a host", a)
		}
	} else if n.Address.Value != "" {
		return invalid("network.address.value", "%q is given, but the source is %q", n.Address.Value, n.Address.Source)
	}
	return nil
}
