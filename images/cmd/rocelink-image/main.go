// Command rocelink-image builds what a board boots, and runs it under QEMU.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "rocelink-image",
		Short: "builds what a board boots, and runs it under QEMU",
		Long: `rocelink-image builds the boot image of a board from its description: initramfs,
FIT image and card image, for Zynq UltraScale+ also BOOT.BIN. The same input
gives the same bytes.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(boardsCommand(), buildCommand(), checkCommand(), runCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(stderr, "rocelink-image: %v\n", err)
		return exitFailed
	}
	return exitOK
}
