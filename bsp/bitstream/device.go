package bitstream

import "strings"

// idVersion are the bits of an IDCODE that count silicon revisions.
const idVersion = 0xF0000000

// devices are IDCODEs without their version. Sources: for Zynq UltraScale+ both
// openFPGALoader src/part.hpp (commit d43508f) and U-Boot
// drivers/soc/soc_xilinx_zynqmp.c (commit 024cfd0), which agree; a die that is
// sold as CG, EG and EV has one IDCODE. For xck26 U-Boot alone. For Versal
// Xilinx/system-controller-app: BIT/idcode (vc1902, vm1802) and BIT/rtc_clock,
// which knows the VPK120 by this IDCODE (vp1202).
var devices = map[uint32]string{
	0x04711093: "xczu2", 0x04710093: "xczu3", 0x04721093: "xczu4", 0x04720093: "xczu5",
	0x04739093: "xczu6", 0x04730093: "xczu7", 0x04738093: "xczu9", 0x04740093: "xczu11eg",
	0x04750093: "xczu15eg", 0x04759093: "xczu17eg", 0x04758093: "xczu19eg",
	0x047E1093: "xczu21dr", 0x047E5093: "xczu25dr", 0x047E4093: "xczu27dr", 0x047E0093: "xczu28dr",
	0x047E2093: "xczu29dr", 0x047E6093: "xczu39dr", 0x047FD093: "xczu43dr", 0x047F8093: "xczu46dr",
	0x047FF093: "xczu47dr", 0x047FB093: "xczu48dr", 0x047FE093: "xczu49dr",
	0x04724093: "xck26",
	0x04CA8093: "xcvc1902", 0x04CAA093: "xcvm1802", 0x04D00093: "xcvp1202",
}

// DeviceName is the device of an IDCODE, or "" if it is not known. A name
// without suffix is a die that is sold as several devices.
func DeviceName(idcode uint32) string { return devices[idcode&^idVersion] }

// samePart reports whether a part, as "xczu9eg-ffvb1156-2-e", is of a device, as
// "xczu9". Older tools leave out the prefix "xc".
func samePart(part, device string) bool {
	name, _, _ := strings.Cut(strings.ToLower(part), "-")
	if !strings.HasPrefix(name, "xc") {
		name = "xc" + name
	}
	rest, ok := strings.CutPrefix(name, device)
	if !ok {
		return false
	}
	// xczu2 is no xczu28dr.
	return rest == "" || rest[0] < '0' || rest[0] > '9'
}
