package images

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"rocelink/boards"
	"rocelink/boards/slot"
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
// then the image of a slot, whose hashes bootm checks. slot.Order says the same
// in Go. It is written for U-Boot's old shell and begins again from the files each
// time, whatever an environment may hold.
func scriptText(bitstream, arguments string, at boards.Addresses) string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	const from = "${devtype} ${devnum}:${distro_bootpart}"
	if bitstream != "" {
		load := "fpga load"
		if strings.HasSuffix(bitstream, ".bit") {
			load = "fpga loadb"
		}
		line("load %s %#x %s && %s 0 %#x ${filesize} || echo rocelink: the fabric is not loaded",
			from, at.Image, bitstream, load, at.Image)
	}
	// Which slot: the state, or its copy where it is torn.
	line("setenv rl_known 0")
	line("for rl_file in %s %s; do", slot.StateFile, slot.StateCopy)
	line("  if test ${rl_known} = 0; then")
	line("    setenv %s; setenv %s; setenv %s; setenv %s", slot.VarSlot, slot.VarTrial, slot.VarSerial, slot.VarCheck)
	line("    if load %s %#x ${rl_file} && env import -t %#x ${filesize} %s %s %s %s; then",
		from, at.Image, at.Image, slot.VarSlot, slot.VarTrial, slot.VarSerial, slot.VarCheck)
	line(`      if test -n "${%s}" && test "${%s}" = "${%s}.${%s}.${%s}"; then setenv rl_known 1; fi`,
		slot.VarCheck, slot.VarCheck, slot.VarSlot, slot.VarTrial, slot.VarSerial)
	line("    fi")
	line("  fi")
	line("done")
	line("if test ${rl_known} = 0; then")
	line("  echo rocelink: the state of the slots cannot be read")
	line("  setenv %s a; setenv %s %s", slot.VarSlot, slot.VarTrial, slot.None)
	line("fi")
	line("if test ${%s} = a; then setenv rl_order a b; else setenv rl_order b a; fi", slot.VarSlot)
	// A trial counts before it begins, or does not begin.
	line("setenv rl_try %s", slot.None)
	line(`if test "${%s}" != %s; then`, slot.VarTrial, slot.None)
	line("  setenv %s; setenv %s", slot.VarTries, slot.VarTriesCheck)
	line("  load %s %#x %s && env import -t %#x ${filesize} %s %s", from, at.Image, slot.TriesFile, at.Image, slot.VarTries, slot.VarTriesCheck)
	line(`  if test -n "${%s}" && test "${%s}" = "${%s}.${%s}"; then`, slot.VarTriesCheck, slot.VarTriesCheck, slot.VarTries, slot.VarSerial)
	line("    if test ${%s} -lt %d; then", slot.VarTries, slot.Limit)
	line("      setexpr %s ${%s} + 1", slot.VarTries, slot.VarTries)
	line("      setenv %s ${%s}.${%s}", slot.VarTriesCheck, slot.VarTries, slot.VarSerial)
	line("      if env export -t -s %#x %#x %s %s && fatwrite %s %#x %s %#x; then",
		slot.FileBytes, at.Image, slot.VarTries, slot.VarTriesCheck, from, at.Image, slot.TriesFile, slot.FileBytes)
	line("        setenv rl_try ${%s}; setenv rl_order ${%s} ${rl_order}", slot.VarTrial, slot.VarTrial)
	line("      else echo rocelink: the trial cannot be counted and is left out; fi")
	line("    else echo rocelink: the new image did not report in; fi")
	line("  else echo rocelink: the tries are not known, no trial; fi")
	line("fi")
	// Each image has its own command line in its own device tree.
	line("for rl_s in ${rl_order}; do")
	line("  setenv rl_word rocelink.slot=${rl_s}")
	line(`  if test "${rl_s}" = "${rl_try}"; then setenv rl_word rocelink.slot=${rl_s},trial; setenv rl_try %s; fi`, slot.None)
	line("  echo rocelink: slot ${rl_s} of ${rl_order}")
	line("  if load %s %#x %s; then", from, at.Image, slot.Image("${rl_s}"))
	line("    setenv bootargs '%s'", arguments)
	line("    imxtract %#x fdt %#x && fdt addr %#x && fdt get value bootargs /chosen bootargs", at.Image, at.DeviceTree, at.DeviceTree)
	line(`    setenv bootargs "${bootargs} ${rl_word}"`)
	line("    bootm %#x", at.Image)
	line("  fi")
	line("  echo rocelink: the image in slot ${rl_s} does not boot")
	line("done")
	return s.String()
}

// extlinux is the same for boot loaders that read extlinux.conf.
func extlinux(image, arguments string) string {
	return fmt.Sprintf("default rocelink\ntimeout 1\nlabel rocelink\n\tkernel /%s\n\tappend %s\n", image, arguments)
}
