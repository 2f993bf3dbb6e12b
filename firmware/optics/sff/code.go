package sff

import "fmt"

// kind is how a module's memory is laid out.
type kind int

const (
	unknownKind kind = iota
	sfpKind
	qsfpKind
	cmisKind
)

// identifiers are the module types of SFF-8024 rev 4.8, table 4-1, that plug
// into a cage.
var identifiers = map[uint8]struct {
	name string
	kind kind
}{
	0x03: {"SFP/SFP+/SFP28", sfpKind},
	0x0B: {"DWDM-SFP/SFP+", sfpKind},
	0x0C: {"QSFP", qsfpKind},
	0x0D: {"QSFP+", qsfpKind},
	0x11: {"QSFP28", qsfpKind},
	0x18: {"QSFP-DD", cmisKind},
	0x19: {"OSFP", cmisKind},
	0x1A: {"SFP-DD", cmisKind},
	0x1B: {"DSFP", cmisKind},
	0x1E: {"QSFP+ with CMIS", cmisKind},
	0x1F: {"SFP-DD with CMIS", cmisKind},
	0x20: {"SFP+ with CMIS", cmisKind},
}

func kindOf(id uint8) kind { return identifiers[id].kind }

func identifier(id uint8) string {
	if n, ok := identifiers[id]; ok {
		return n.name
	}
	return fmt.Sprintf("unknown (0x%02X)", id)
}

// connectors are the connector types of SFF-8024 rev 4.8, table 4-3.
var connectors = map[uint8]string{
	0x01: "SC", 0x02: "Fibre Channel style 1", 0x03: "Fibre Channel style 2", 0x04: "BNC/TNC",
	0x05: "Fibre Channel coax", 0x06: "fiber jack", 0x07: "LC", 0x08: "MT-RJ", 0x09: "MU", 0x0A: "SG",
	0x0B: "optical pigtail", 0x0C: "MPO 1x12", 0x0D: "MPO 2x16", 0x20: "HSSDC II", 0x21: "copper pigtail",
	0x22: "RJ45", 0x23: "no separable connector", 0x24: "MXC 2x16", 0x25: "CS", 0x26: "SN", 0x27: "MPO 2x12",
	0x28: "MPO 1x16",
}

func connector(c uint8) string {
	if c == 0 {
		return ""
	}
	if n, ok := connectors[c]; ok {
		return n
	}
	return fmt.Sprintf("unknown (0x%02X)", c)
}

// extended are the extended specification compliance codes of SFF-8024 rev 4.8,
// table 4-4, of the modules a 100G or 25G port takes.
var extended = map[uint8]string{
	0x01: "100G AOC or 25GAUI C2M AOC (BER 5e-5)",
	0x02: "100GBASE-SR4 or 25GBASE-SR",
	0x03: "100GBASE-LR4 or 25GBASE-LR",
	0x04: "100GBASE-ER4 or 25GBASE-ER",
	0x05: "100GBASE-SR10",
	0x06: "100G CWDM4",
	0x07: "100G PSM4",
	0x08: "100G ACC or 25GAUI C2M ACC (BER 5e-5)",
	0x0B: "100GBASE-CR4, 25GBASE-CR CA-25G-L or 50GBASE-CR2 with RS-FEC",
	0x0C: "25GBASE-CR CA-25G-S or 50GBASE-CR2 with BASE-R FEC",
	0x0D: "25GBASE-CR CA-25G-N or 50GBASE-CR2 without FEC",
	0x10: "40GBASE-ER4",
	0x11: "4 x 10GBASE-SR",
	0x12: "40G PSM4",
	0x16: "10GBASE-T with SFI",
	0x17: "100G CLR4",
	0x18: "100G AOC or 25GAUI C2M AOC (BER 1e-12)",
	0x19: "100G ACC or 25GAUI C2M ACC (BER 1e-12)",
	0x1A: "100GE-DWDM2",
	0x1C: "10GBASE-T short reach",
	0x20: "100G SWDM4",
	0x21: "100G PAM4 BiDi",
	0x25: "100GBASE-DR",
	0x26: "100G-FR or 100GBASE-FR1",
	0x27: "100G-LR or 100GBASE-LR1",
}

// copperCode reports whether an extended code is that of a copper cable.
func copperCode(c uint8) (copper, active bool) {
	switch c {
	case 0x0B, 0x0C, 0x0D:
		return true, false
	case 0x08, 0x19:
		return true, true
	}
	return false, false
}

func extendedCode(c uint8) string {
	if n, ok := extended[c]; ok {
		return n
	}
	return fmt.Sprintf("extended code 0x%02X", c)
}

// Layout is the memory map of an identifier, or "" if it is not known.
func Layout(id uint8) Management {
	switch kindOf(id) {
	case qsfpKind:
		return SFF8636
	case sfpKind:
		return SFF8472
	case cmisKind:
		return CMIS
	}
	return ""
}
