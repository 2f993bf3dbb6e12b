// Command guest-receive is the agent's receive loop as the lab runs it in a
// guest: it opens a device of one of the agent's providers, does what package
// session says, and counts. One process can serve several sessions, one after
// the other.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"rocelink/agent/lab/session"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/ibverbs"
	"rocelink/agent/verbs/soft"
)

var providers = map[string]func() verbs.Provider{
	"ibverbs": func() verbs.Provider { return ibverbs.New(ibverbs.Config{}) },
	"soft":    soft.New,
}

func main() {
	provider := flag.String("provider", "ibverbs", "provider of the device")
	device := flag.String("device", "", "name of the device, as the provider spells it")
	flag.Parse()
	if err := run(*provider, *device, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guest-receive:", err)
		os.Exit(1)
	}
}

func run(provider, name string, in io.Reader, out io.Writer) (err error) {
	open := providers[provider]
	if open == nil {
		return fmt.Errorf("no provider %q", provider)
	}
	dev, err := open().Open(name)
	if err != nil {
		return err
	}
	h := session.NewHost(dev)
	defer func() { err = errors.Join(err, h.Close()) }()
	requests, replies := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var q session.Request
		if err := requests.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		if err := replies.Encode(h.Handle(q)); err != nil {
			return fmt.Errorf("reply: %w", err)
		}
	}
}
