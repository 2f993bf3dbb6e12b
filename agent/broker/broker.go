// Package broker runs the NATS server inside rocelinkd, on loopback unless
// told otherwise, so that a single host needs no other.
package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Config shapes the server. The zero value listens on 127.0.0.1:4222 without
// JetStream.
type Config struct {
	// Listen is host:port; port 0 takes a free one. An address that is not
	// loopback needs ConfigFile, which says who may connect.
	Listen string
	// StoreDir turns JetStream on and keeps its files there.
	StoreDir string
	// ConfigFile is a nats-server configuration file: accounts, keys, TLS,
	// leaf nodes. Listen and StoreDir, if given, go before what it says.
	ConfigFile string
	Log        *slog.Logger
}

// Broker is a running server.
type Broker struct{ server *server.Server }

// ErrExposed: the address is reachable from outside and nothing says who may
// connect.
var ErrExposed = errors.New("not a loopback address and no access rules")

const startLimit = 10 * time.Second

// Start starts a server and returns when it takes connections.
func Start(c Config) (*Broker, error) {
	opts := &server.Options{}
	if c.ConfigFile != "" {
		o, err := server.ProcessConfigFile(c.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("start NATS server: configuration %s: %w", c.ConfigFile, err)
		}
		opts = o
	} else if c.Listen == "" {
		c.Listen = "127.0.0.1:4222"
	}
	if c.Listen != "" {
		host, port, err := net.SplitHostPort(c.Listen)
		if err != nil {
			return nil, fmt.Errorf("start NATS server: listen address %q: %w: write host:port", c.Listen, err)
		}
		if opts.Port, err = strconv.Atoi(port); err != nil || opts.Port < 0 || opts.Port > 65535 {
			return nil, fmt.Errorf("start NATS server: listen address %q: port %q is not 0 to 65535", c.Listen, port)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
		opts.Host = host
	}
	if c.ConfigFile == "" && !loopback(opts.Host) {
		return nil, fmt.Errorf("start NATS server: listen on %s: %w: give a server configuration file with users, or listen on 127.0.0.1", opts.Host, ErrExposed)
	}
	if c.StoreDir != "" {
		if err := os.MkdirAll(c.StoreDir, 0o700); err != nil {
			return nil, fmt.Errorf("start NATS server: JetStream directory: %w", err)
		}
		opts.JetStream, opts.StoreDir = true, c.StoreDir
	}
	opts.NoSigs = true
	opts.MaxPayload = 1 << 20
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("start NATS server: %w", err)
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s.SetLogger(logger{log}, false, false)
	// Asked first: the server itself would only log it and never be ready.
	if err := portFree(opts); err != nil {
		return nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(startLimit) {
		s.Shutdown()
		return nil, fmt.Errorf("start NATS server: not ready on %s:%d after %v: is the port taken?", opts.Host, opts.Port, startLimit)
	}
	return &Broker{s}, nil
}

func portFree(o *server.Options) error {
	if o.Port == server.RANDOM_PORT {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
	if err != nil {
		return fmt.Errorf("start NATS server: %w: stop the other server, use it (--nats URL), or listen on another port (--nats-listen)", err)
	}
	return l.Close()
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// URL is how a client on this host reaches the server.
func (b *Broker) URL() string { return b.server.ClientURL() }

// Close ends the server; clients are disconnected.
func (b *Broker) Close() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}
