// Command boardd runs a board: it brings fabric and link up, keeps the streams
// that hosts open, and reports over NATS.
package main

import (
	"os"

	"rocelink/firmware/daemon"
)

func main() { os.Exit(daemon.Main()) }
