// Package volume finds and mounts the FAT volume that a board starts from.
package volume

import (
	"encoding/binary"
	"errors"
	"strings"
)

// Label is that of the volume.
const Label = "ROCELINK"

// ErrNone means that no volume has the label.
var ErrNone = errors.New("no such volume")

// bootSector is what of a FAT volume is read to know its label.
const bootSector = 512

// fatLabel returns the label in the boot sector of a FAT volume (Microsoft FAT
// specification, 2005, section 3: BPB_FATSz16 is zero exactly on FAT32, whose
// extended part begins later).
func fatLabel(sector []byte) (label string, ok bool) {
	if len(sector) < bootSector || sector[510] != 0x55 || sector[511] != 0xAA {
		return "", false
	}
	const signature = 0x29 // BS_BootSig: the fields after it are present
	at := 38               // BS_BootSig of FAT12 and FAT16
	if binary.LittleEndian.Uint16(sector[22:]) == 0 {
		at = 66
	}
	// BS_BootSig, BS_VolID (4), BS_VolLab (11), BS_FilSysType (8)
	if sector[at] != signature || !strings.HasPrefix(string(sector[at+16:at+24]), "FAT") {
		return "", false
	}
	return strings.TrimRight(string(sector[at+5:at+16]), " \x00"), true
}
