// Command board-init is the /init of a board: process 1, which brings the
// system up and keeps boardd running. It takes no flags; firmware/boot says
// what it does and where its settings come from.
package main

import (
	"fmt"
	"os"

	"rocelink/firmware/boot"
	"rocelink/firmware/boot/kernel"
)

func main() {
	k, err := kernel.New()
	if err != nil {
		fmt.Fprintf(os.Stderr, "board-init: %v\n", err)
		os.Exit(1)
	}
	boot.New(boot.Config{System: k, Console: os.Stdout}).Run()
	k.Hold()
}
