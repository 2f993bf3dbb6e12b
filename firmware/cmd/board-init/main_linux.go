// Command board-init is the /init of a board: process 1, which brings the
// system up and keeps boardd running. It takes no flags; firmware/boot says
// what it does and where its settings come from. Started under the name boardd it
// is boardd: both share most of their code, and one file takes a megabyte less of
// the initramfs than two.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"rocelink/firmware/boot"
	"rocelink/firmware/boot/kernel"
	"rocelink/firmware/daemon"
)

func main() {
	if filepath.Base(os.Args[0]) == "boardd" {
		os.Exit(daemon.Main())
	}
	k, err := kernel.New()
	if err != nil {
		fmt.Fprintf(os.Stderr, "board-init: %v\n", err)
		os.Exit(1)
	}
	boot.New(boot.Config{System: k, Console: os.Stdout}).Run()
	k.Hold()
}
