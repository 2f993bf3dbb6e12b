package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"rocelink/boards"
	"rocelink/images"
)

func boardsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "boards",
		Short: "lists the built-in boards that have an image",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range boards.Names() {
				b, err := boards.Load(name)
				if err != nil {
					return err
				}
				if b.Boot == nil {
					continue
				}
				where := ""
				if b.Boot.Emulator != nil {
					where = "runs under QEMU"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-14s %-8s %-24s %s\n", name, b.SoC, b.Device, where)
			}
			return nil
		},
	}
}

func buildCommand() *cobra.Command {
	var c images.Config
	cmd := &cobra.Command{
		Use:   "build --board NAME --out FOLDER",
		Short: "builds the image of a board",
		Example: `  rocelink-image build --board rfsoc4x2 --out build/rfsoc4x2 --devicetree my.dtb \
    --fsbl fsbl.elf --pmufw pmufw.elf --tfa bl31.elf --u-boot u-boot.elf --bitstream fabric.bit \
    --set nats=nats://192.168.1.10:4222 --set address=192.168.100.2
  dd if=build/rfsoc4x2/card.img of=/dev/sdX bs=4M conv=fsync`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newProgress(cmd.ErrOrStderr())
			defer p.stop()
			c.Progress = p.step
			r, err := images.Build(cmd.Context(), c)
			p.stop()
			if err != nil {
				return err
			}
			for _, f := range r.Files {
				fmt.Fprintf(cmd.OutOrStdout(), "%10d  %s\n", f.Bytes, filepath.Join(c.Out, f.Name))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Board, "board", "", "built-in board, or `file` (.yaml) with a description (required)")
	f.StringVar(&c.Out, "out", "", "`folder` of the results (required)")
	f.StringVar(&c.Cache, "cache", "", "`folder` of fetched packages (default: cache beside the results)")
	f.StringVar(&c.Source, "source", "", "`folder` of the source of boardd and init (default: the current one)")
	f.StringVar(&c.Init, "init", "", "init `program` in place of the one from the source")
	f.StringVar(&c.Boardd, "boardd", "", "boardd `program` in place of the one from the source")
	f.StringVar(&c.Kernel, "kernel", "", "kernel `path` in place of Debian's package: an image, or a folder with boot/vmlinuz-* and lib/modules")
	f.BoolVar(&c.NoModules, "no-modules", false, "the kernel has all drivers built in")
	f.StringVar(&c.DeviceTree, "devicetree", "", ".dts or .dtb `file` in place of the board's")
	f.StringVar(&c.Firmware, "firmware", "", "`folder` of the firmware files that the board's description names")
	f.StringVar(&c.Console, "console", "", "serial `port` in place of the board's: ttyPS0,115200")
	f.StringArrayVar(&c.Settings, "set", nil, "`key=value` of the board's configuration (nats, ip, name, address, …); may be repeated")
	f.StringArrayVar(&c.Arguments, "append", nil, "`word` for the kernel's command line; may be repeated")
	f.StringVar(&c.Shell, "shell", "", "static `program` that becomes the rescue shell, or busybox: Debian's; --set shell=1 starts it on the console")
	f.StringVar(&c.ImageConfig, "config", "", "`file` of configuration that becomes /etc/rocelink/rocelink.yaml")
	f.StringVar(&c.CardConfig, "card-config", "", "`file` that becomes rocelink.yaml on the card")
	f.StringVar(&c.Bitstream, "bitstream", "", ".bit or .bin `file` that the boot loader loads from the card")
	f.StringVar(&c.Boot.FSBL, "fsbl", "", "first stage boot loader, ELF `file`, for BOOT.BIN (Zynq UltraScale+)")
	f.StringVar(&c.Boot.PMUFW, "pmufw", "", "PMU firmware, ELF `file`, for BOOT.BIN")
	f.StringVar(&c.Boot.Firmware, "tfa", "", "Trusted Firmware-A, ELF `file`, for BOOT.BIN")
	f.StringVar(&c.Boot.UBoot, "u-boot", "", "U-Boot, ELF `file`, for BOOT.BIN")
	f.StringVar(&c.Boot.Bitstream, "boot-bitstream", "", ".bit `file` within BOOT.BIN: the fabric is there before U-Boot")
	f.StringVar(&c.DeviceImage, "pdi", "", "device image (PDI) `file` of Versal, passed through to the card")
	f.Int64Var(&c.CardSize, "card-size", 0, "`bytes` of the card's image (default: what is needed, at least 128 MiB)")
	f.StringVar(&c.SigningKey, "sign", "", "Ed25519 key, PEM `file`: signs the FIT image")
	f.StringVar(&c.UpdateKey, "update-key", "", "public key, PEM `file`, by which the board checks a new image (default: that of --sign)")
	f.BoolVar(&c.Extlinux, "extlinux", false, "add extlinux.conf for boot loaders that know no scripts: one slot, no updates")
	f.StringVar(&c.Name, "name", "", "the board's `name` (default: that of its description)")
	f.StringVar(&c.Version, "image-version", "", "`version` of the image (default: from git)")
	f.Int64Var(&c.MaxInitramfs, "max-initramfs", 0, "`bytes` the packed initramfs may have (default: 4 MiB, 8 MiB with a shell)")
	f.StringVar((*string)(&c.Compression), "compression", "", "`zstd or gzip` for the initramfs (default: zstd)")
	for _, name := range []string{"board", "out"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return cmd
}

// progress shows steps, and that one which takes long is still under way.
type progress struct {
	out  io.Writer
	mu   sync.Mutex
	name string
	from time.Time
	end  context.CancelFunc
}

const heartbeat = 5 * time.Second

func newProgress(out io.Writer) *progress {
	ctx, end := context.WithCancel(context.Background())
	p := &progress{out: out, end: end}
	go func() {
		t := time.NewTicker(heartbeat)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				p.mu.Lock()
				if p.name != "" && time.Since(p.from) >= heartbeat {
					fmt.Fprintf(p.out, "  … %s: %v\n", p.name, time.Since(p.from).Round(time.Second))
				}
				p.mu.Unlock()
			}
		}
	}()
	return p
}

func (p *progress) step(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.from = name, time.Now()
	fmt.Fprintf(p.out, "  %s\n", name)
}

// stop ends the showing. It may be called twice.
func (p *progress) stop() {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = ""
}
