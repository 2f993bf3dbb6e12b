package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/nats-io/nats.go"

	"rocelink"
)

// connect connects a command to the server. What the server does not permit is
// told once on standard error: nothing would come, and nobody would know why.
func connect(access *rocelink.Access, command string, retry bool) (*nats.Conn, error) {
	var once sync.Once
	return rocelink.Connect(*access, rocelink.Client{Name: "rocectl " + command, Retry: retry, Refused: func(err error) {
		once.Do(func() {
			fmt.Fprintf(os.Stderr, "rocectl: the server does not permit %s to this key: %v: an operator may, see rocectl access\n", command, err)
		})
	}})
}
