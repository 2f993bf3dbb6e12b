package sdcard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Fields and entries (Microsoft, FAT: General Overview of On-Disk Format, 1.03,
// "Boot Sector and BPB", "FAT Directory Structure").
const (
	bpbSectorsPerCluster = 13
	bpbReserved          = 14
	bpbTables            = 16
	bpbHidden            = 28
	bpbSectorsPerTable   = 36
	bpbRootCluster       = 44
	bpbBackup            = 50

	entryBytes      = 32
	entryAttribute  = 11
	entryHigh       = 20
	entryLow        = 26
	attributeFolder = 0x10
	attributeLabel  = 0x08
	lastCluster     = 0x0ffffff8
)

// repair sets what the library leaves wrong: in a folder of the root folder ".."
// must name cluster 0, whatever cluster the root folder has, and the boot sector
// must know how many sectors come before it.
func repair(f *os.File) error {
	v := volume{f: f, boot: make([]byte, sector)}
	if _, err := f.ReadAt(v.boot, start); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(v.boot[bpbHidden:], start/sector)
	backup := int64(binary.LittleEndian.Uint16(v.boot[bpbBackup:]))
	for _, s := range []int64{0, backup} {
		if _, err := f.WriteAt(v.boot, start+s*sector); err != nil {
			return err
		}
	}
	folders, err := v.rootFolders()
	if err != nil {
		return err
	}
	for _, c := range folders {
		at := v.cluster(c) + entryBytes
		e := make([]byte, entryBytes)
		if _, err := f.ReadAt(e, at); err != nil {
			return err
		}
		if string(e[:11]) != "..         " {
			return fmt.Errorf("folder at cluster %d: second entry %q is not the folder above", c, e[:11])
		}
		binary.LittleEndian.PutUint16(e[entryHigh:], 0)
		binary.LittleEndian.PutUint16(e[entryLow:], 0)
		if _, err := f.WriteAt(e, at); err != nil {
			return err
		}
	}
	return nil
}

// volume is the file system behind its boot sector.
type volume struct {
	f    *os.File
	boot []byte
}

func (v *volume) table() int64 {
	return start + int64(binary.LittleEndian.Uint16(v.boot[bpbReserved:]))*sector
}

func (v *volume) clusterBytes() int64 { return int64(v.boot[bpbSectorsPerCluster]) * sector }

// cluster is where a cluster's data are.
func (v *volume) cluster(n uint32) int64 {
	tables := int64(v.boot[bpbTables]) * int64(binary.LittleEndian.Uint32(v.boot[bpbSectorsPerTable:])) * sector
	return v.table() + tables + int64(n-2)*v.clusterBytes()
}

// rootFolders are the first clusters of the root folder's folders.
func (v *volume) rootFolders() ([]uint32, error) {
	var out []uint32
	data := make([]byte, v.clusterBytes())
	c := binary.LittleEndian.Uint32(v.boot[bpbRootCluster:])
	for range 1 << 16 {
		if c >= lastCluster {
			return out, nil
		}
		if _, err := v.f.ReadAt(data, v.cluster(c)); err != nil {
			return nil, err
		}
		for e := data; len(e) > 0; e = e[entryBytes:] {
			if e[0] == 0 {
				return out, nil
			}
			if a := e[entryAttribute]; a&attributeFolder != 0 && a&attributeLabel == 0 {
				out = append(out, uint32(binary.LittleEndian.Uint16(e[entryHigh:]))<<16|uint32(binary.LittleEndian.Uint16(e[entryLow:])))
			}
		}
		next := make([]byte, 4)
		if _, err := v.f.ReadAt(next, v.table()+4*int64(c)); err != nil {
			return nil, err
		}
		c = binary.LittleEndian.Uint32(next) & 0x0fffffff
	}
	return nil, errors.New("the root folder does not end")
}
