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
	// Refused hears of everyone who is not let in or not permitted what he asked
	// for. It must not block.
	Refused func(Refusal)
	Log     *slog.Logger
}

// Broker is a running server.
type Broker struct {
	server *server.Server
	config Config
}

// ErrExposed: the address is reachable from outside and nothing says who may
// connect.
var ErrExposed = errors.New("not a loopback address and no access rules")

const startLimit = 10 * time.Second

// Start starts a server and returns when it takes connections.
func Start(c Config) (*Broker, error) {
	opts, err := c.options()
	if err != nil {
		return nil, fmt.Errorf("start NATS server: %w", err)
	}
	if c.StoreDir != "" {
		if err := os.MkdirAll(c.StoreDir, 0o700); err != nil {
			return nil, fmt.Errorf("start NATS server: JetStream directory: %w", err)
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("start NATS server: %w", err)
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s.SetLogger(logger{log: log, refused: c.Refused}, false, false)
	// Asked first: the server itself would only log it and never be ready.
	if err := portFree(opts); err != nil {
		return nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(startLimit) {
		s.Shutdown()
		return nil, fmt.Errorf("start NATS server: not ready on %s:%d after %v: is the port taken?", opts.Host, opts.Port, startLimit)
	}
	return &Broker{s, c}, nil
}

// options are the server's, from the file and from what goes before it.
func (c Config) options() (*server.Options, error) {
	opts := &server.Options{}
	if c.ConfigFile != "" {
		o, err := server.ProcessConfigFile(c.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("configuration %s: %w", c.ConfigFile, err)
		}
		opts = o
	} else if c.Listen == "" {
		c.Listen = "127.0.0.1:4222"
	}
	if c.Listen != "" {
		host, port, err := net.SplitHostPort(c.Listen)
		if err != nil {
			return nil, fmt.Errorf("listen address %q: %w: write host:port", c.Listen, err)
		}
		if opts.Port, err = strconv.Atoi(port); err != nil || opts.Port < 0 || opts.Port > 65535 {
			return nil, fmt.Errorf("listen address %q: port %q is not 0 to 65535", c.Listen, port)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
		opts.Host = host
	}
	if c.ConfigFile == "" && !loopback(opts.Host) {
		return nil, fmt.Errorf("listen on %s: %w: give a server configuration file with users (rocectl access init makes one), or listen on 127.0.0.1", opts.Host, ErrExposed)
	}
	if c.StoreDir != "" {
		opts.JetStream, opts.StoreDir = true, c.StoreDir
	}
	opts.NoSigs = true
	opts.MaxPayload = 1 << 20
	return opts, nil
}

// Reload reads the configuration file again: users, keys, permissions and the
// certificate change without a restart, and who is not permitted any more is
// disconnected. After an error the server goes on as before.
func (b *Broker) Reload() error {
	if b.config.ConfigFile == "" {
		return nil
	}
	opts, err := b.config.options()
	if err != nil {
		return fmt.Errorf("reload NATS server: %w", err)
	}
	if opts.Port == server.RANDOM_PORT {
		if a, ok := b.server.Addr().(*net.TCPAddr); ok {
			opts.Port = a.Port
		}
	}
	if err := b.server.ReloadOptions(opts); err != nil {
		return fmt.Errorf("reload NATS server: %w", err)
	}
	return nil
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
