//go:build !linux

// Command board-init is the /init of a board, which runs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "board-init: runs on Linux only")
	os.Exit(1)
}
