package images

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"rocelink/boards"
)

// Header of a legacy image of U-Boot (include/image.h, struct
// legacy_img_hdr, 2023.01).
type scriptHeader struct {
	Magic, HeaderCRC, Time, Size, Load, Entry, DataCRC uint32
	OS, Arch, Type, Compression                        uint8
	Name                                               [32]byte
}

const (
	scriptMagic = 0x27051956
	osLinux     = 5
	archARM64   = 22
	typeScript  = 6
)

// script packs the text of a boot script as U-Boot's command source wants it.
func script(text string, t time.Time) ([]byte, error) {
	// A list of lengths that ends with 0, then the texts.
	data := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	data = binary.BigEndian.AppendUint32(data, 0)
	data = append(data, text...)
	h := scriptHeader{
		Magic: scriptMagic, Time: uint32(t.Unix()), Size: uint32(len(data)), DataCRC: crc32.ChecksumIEEE(data),
		OS: osLinux, Arch: archARM64, Type: typeScript,
	}
	copy(h.Name[:], "rocelink boot script")
	header := func() ([]byte, error) {
		var b bytes.Buffer
		err := binary.Write(&b, binary.BigEndian, &h)
		return b.Bytes(), err
	}
	b, err := header()
	if err != nil {
		return nil, err
	}
	h.HeaderCRC = crc32.ChecksumIEEE(b) // over the header with a zero there
	if b, err = header(); err != nil {
		return nil, err
	}
	return append(b, data...), nil
}

// scriptText is what U-Boot does: the fabric first, since boardd looks for it,
// then the image, whose hashes bootm checks.
func scriptText(image, bitstream, arguments string, at boards.Addresses) string {
	var s strings.Builder
	const from = "${devtype} ${devnum}:${distro_bootpart}"
	if bitstream != "" {
		load := "fpga load"
		if strings.HasSuffix(bitstream, ".bit") {
			load = "fpga loadb"
		}
		fmt.Fprintf(&s, "load %s %#x %s && %s 0 %#x ${filesize} || echo rocelink: the fabric is not loaded\n",
			from, at.Image, bitstream, load, at.Image)
	}
	fmt.Fprintf(&s, "setenv bootargs '%s'\n", arguments)
	fmt.Fprintf(&s, "load %s %#x %s && bootm %#x\n", from, at.Image, image, at.Image)
	s.WriteString("echo rocelink: the image does not boot\n")
	return s.String()
}

// extlinux is the same for boot loaders that read extlinux.conf.
func extlinux(image, arguments string) string {
	return fmt.Sprintf("default rocelink\ntimeout 1\nlabel rocelink\n\tkernel /%s\n\tappend %s\n", image, arguments)
}
