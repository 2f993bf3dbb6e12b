package bitstream

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Image is what the headers of a Versal PDI say (UG1283 chapter "Boot Image
// Layout for Versal"; layout checked against Xilinx/bootgen 4f023ac).
type Image struct {
	Kind    string `json:"kind"`    // full (it holds the PLM) or partial
	Version Hex    `json:"version"` // of the image header table
	ID      Hex    `json:"id"`
	Parent  Hex    `json:"parent_id"`
	// ExtendedID tells dies with the same IDCODE apart.
	ExtendedID Hex         `json:"extended_idcode"`
	Images     []Subsystem `json:"images"`
	Partitions int         `json:"partitions"`
	// ChecksumOK: the headers that hold a checksum all have the right one.
	ChecksumOK bool `json:"checksum_ok"`
}

// Subsystem is one image of a PDI, as "pl_cfi" or "aie_subsys".
type Subsystem struct {
	Name string `json:"name"`
	ID   Hex    `json:"id"`
	// UniqueID and ParentID tie a partial PDI to the design it fits.
	UniqueID Hex `json:"unique_id"`
	ParentID Hex `json:"parent_unique_id"`
}

// The boot header (bootgen VersalBootHeaderStructure).
const (
	bootWidth       = 0x10 // width detection, the sync word
	bootID          = 0x14 // "XNLX"
	bootKeySource   = 0x18
	bootTableOffset = 0xC4
	bootCovered     = 3872 // bytes from bootWidth under the checksum
	bootChecksum    = 0xF30
	bootSize        = 0xF80
)

// The image header table (VersalImageHeaderTableStructure).
const (
	tableVersion    = 0x00
	tableImages     = 0x04
	tableImageAt    = 0x08 // in words
	tablePartitions = 0x0C
	tablePartAt     = 0x10 // in words
	tableIDCode     = 0x18
	tablePDI        = 0x20
	tableParent     = 0x24
	tableID         = 0x28
	tableKeySource  = 0x40
	tableExtended   = 0x44
	tableChecksum   = 0x7C
	tableSize       = 0x80
)

// An image header (VersalImageHeaderStructure) and a partition header
// (VersalPartitionHeaderTableStructure).
const (
	imageName     = 0x10 // 16 bytes
	imageID       = 0x20
	imageUnique   = 0x24
	imageParent   = 0x28
	imageChecksum = 0x3C
	imageSize     = 0x40

	partLength    = 0x08 // in words
	partOffset    = 0x20 // in words
	partKeySource = 0x44
	partChecksum  = 0x7C
	partSize      = 0x80
)

// Identification of the table.
const (
	fullPDI    = 0x46504449 // "FPDI"
	partialPDI = 0x50504449 // "PPDI"
)

// A PDI has some ten images and partitions; the bounds keep a broken header from
// asking for memory.
const (
	maxEntries = 256
	maxMeta    = 1 << 20
)

func le(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }

// hasTable reports whether a table of the kind begins at an offset.
func hasTable(b []byte, at int, id uint32) bool {
	return len(b) >= at+tableID+4 && le(b, at+tableID) == id
}

// smapBytes is the bus width pattern that bootgen puts before a partial PDI,
// unless told not to.
const smapBytes = 16

func isPDI(b []byte) bool {
	return len(b) >= bootID+4 && bytes.Equal(b[bootWidth:bootWidth+4], syncSwapped) && bytes.Equal(b[bootID:bootID+4], []byte("XNLX")) ||
		hasTable(b, 0, partialPDI) || hasTable(b, smapBytes, partialPDI)
}

// wordSum is the checksum of all headers: the inverted sum of the words.
func wordSum(b []byte) uint32 {
	var s uint32
	for ; len(b) >= 4; b = b[4:] {
		s += le(b, 0)
	}
	return ^s
}

// checked notes whether a header's checksum is right.
func (i *Info) checked(what string, covered []byte, stored uint32) {
	if sum := wordSum(covered); sum != stored {
		i.PDI.ChecksumOK = false
		i.problem("checksum of the %s is %s, computed %s", what, Hex(stored), Hex(sum))
	}
}

func readBytes(b *bufio.Reader, n int, what string) ([]byte, error) {
	p := make([]byte, n)
	if _, err := io.ReadFull(b, p); err != nil {
		return nil, short(what, err)
	}
	return p, nil
}

func (i *Info) readPDI(b *bufio.Reader) error {
	i.PDI = &Image{ChecksumOK: true, Images: []Subsystem{}}
	start, err := peek(b, 64)
	if err != nil {
		return err
	}
	at := int64(0) // where the table begins
	switch {
	case hasTable(start, 0, partialPDI):
	case hasTable(start, smapBytes, partialPDI):
		at = smapBytes
	default:
		if at, err = i.readBoot(b); err != nil {
			return err
		}
	}
	if at == smapBytes {
		if _, err := b.Discard(smapBytes); err != nil {
			return short("the bus width pattern", err)
		}
	}
	table, err := readBytes(b, tableSize, "the image header table")
	if err != nil {
		return err
	}
	return i.readTable(b, table, at)
}

// readBoot reads the boot header and passes on to the table.
func (i *Info) readBoot(b *bufio.Reader) (int64, error) {
	h, err := readBytes(b, bootSize, "the boot header")
	if err != nil {
		return 0, err
	}
	i.checked("boot header", h[bootWidth:bootWidth+bootCovered], le(h, bootChecksum))
	i.Encrypted = le(h, bootKeySource) != 0
	at := int64(le(h, bootTableOffset))
	if at < bootSize {
		return 0, fmt.Errorf("the boot header puts the image header table at 0x%X, inside itself: %w", at, ErrHeader)
	}
	for skip := at - bootSize; skip > 0; {
		n, err := b.Discard(int(min(skip, 1<<20)))
		if skip -= int64(n); err != nil {
			if errors.Is(err, io.EOF) {
				return 0, fmt.Errorf("the image header table at 0x%X: %w", at, ErrTruncated)
			}
			return 0, fmt.Errorf("read bitstream: %w", err)
		}
	}
	return at, nil
}

// readTable reads the table at an offset and the headers it names.
func (i *Info) readTable(b *bufio.Reader, t []byte, at int64) error {
	p := i.PDI
	switch id := le(t, tableID); id {
	case fullPDI:
		p.Kind = "full"
	case partialPDI:
		p.Kind = "partial"
	default:
		return fmt.Errorf("the image header table is identified by 0x%08X, want \"FPDI\" or \"PPDI\": %w", id, ErrHeader)
	}
	i.checked("image header table", t[:tableChecksum], le(t, tableChecksum))
	p.Version, p.ID, p.Parent = Hex(le(t, tableVersion)), Hex(le(t, tablePDI)), Hex(le(t, tableParent))
	p.ExtendedID = Hex(le(t, tableExtended))
	i.IDCode = Hex(le(t, tableIDCode))
	i.Device = DeviceName(le(t, tableIDCode))
	images, partitions := int64(le(t, tableImages)), int64(le(t, tablePartitions))
	if images > maxEntries || partitions > maxEntries {
		return fmt.Errorf("the image header table counts %d images and %d partitions, at most %d: %w", images, partitions, maxEntries, ErrHeader)
	}
	p.Partitions = int(partitions)
	if le(t, tableKeySource) != 0 {
		i.Encrypted = true
		i.problem("the headers of images and partitions are encrypted")
		return nil
	}
	after := at + tableSize
	imageAt, partAt := 4*int64(le(t, tableImageAt))-after, 4*int64(le(t, tablePartAt))-after
	end := max(imageAt+images*imageSize, partAt+partitions*partSize)
	if imageAt < 0 || partAt < 0 || end > maxMeta {
		return fmt.Errorf("the image header table puts headers of images at word %d and of partitions at word %d: %w",
			le(t, tableImageAt), le(t, tablePartAt), ErrHeader)
	}
	meta, err := readBytes(b, int(end), "the headers of images and partitions")
	if err != nil {
		return err
	}
	for n := range images {
		h := meta[imageAt+n*imageSize:][:imageSize]
		i.checked(fmt.Sprintf("header of image %d", n), h[:imageChecksum], le(h, imageChecksum))
		name, _, _ := bytes.Cut(h[imageName:imageName+16], []byte{0})
		p.Images = append(p.Images, Subsystem{
			Name: printable(name), ID: Hex(le(h, imageID)), UniqueID: Hex(le(h, imageUnique)), ParentID: Hex(le(h, imageParent)),
		})
	}
	for n := range partitions {
		h := meta[partAt+n*partSize:][:partSize]
		i.checked(fmt.Sprintf("header of partition %d", n), h[:partChecksum], le(h, partChecksum))
		i.Encrypted = i.Encrypted || le(h, partKeySource) != 0
		i.need = max(i.need, 4*(int64(le(h, partOffset))+int64(le(h, partLength))))
	}
	return nil
}
