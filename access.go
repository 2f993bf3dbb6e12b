package rocelink

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// DefaultURL is where rocelinkd's embedded NATS server listens unless told
// otherwise.
const DefaultURL = "nats://127.0.0.1:4222"

// Access says which NATS server to use and with which credentials. The zero
// value is the local server without any.
type Access struct {
	URL         string // one or more, separated by commas; "" is DefaultURL
	Credentials string // file with a user JWT and nkey seed (.creds)
	NKey        string // file with an nkey seed
	CA          string // file with the certificates that sign the server's; turns TLS on
	Cert, Key   string // files of the client's own certificate
}

// Client is how a program appears at the server and hears of its connection.
type Client struct {
	Name string
	Log  *slog.Logger // nil: silent
	// Retry: succeed at once and keep trying when no server answers yet. The
	// program must not depend on the server then.
	Retry bool
	// Connected runs after each connection, the first included, with Retry.
	Connected func()
	// Inbox is the prefix of the subjects on which the client takes replies, of
	// BoardInbox or HostInbox; "" is KeyInbox. One that does not depend on the
	// key outlives its exchange.
	Inbox string
	// Refused runs when the server does not permit a subject to this client. It
	// must not block.
	Refused func(error)
	// Options are added to those that everyone uses.
	Options []nats.Option
}

// The wait between attempts to connect, with jitter so that a server that
// restarts is not asked by everyone at once.
const (
	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = 250 * time.Millisecond
)

// Check finds what cannot work whatever the server is. URLs may carry a
// password and are never repeated in an error.
func (a Access) Check() error {
	if (a.Cert == "") != (a.Key == "") {
		return errors.New("access to NATS: client certificate and its key go together")
	}
	if a.Credentials != "" && a.NKey != "" {
		return errors.New("access to NATS: credentials file and nkey file exclude each other")
	}
	if a.URL != "" {
		for i, s := range strings.Split(a.URL, ",") {
			if s = strings.TrimSpace(s); !strings.Contains(s, "://") {
				s = "nats://" + s
			}
			if u, err := url.Parse(s); err != nil || u.Hostname() == "" {
				return fmt.Errorf("access to NATS: URL %d is none: want nats://host:4222", i+1)
			}
		}
	}
	for _, file := range []string{a.Credentials, a.NKey, a.CA, a.Cert, a.Key} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("access to NATS: %w", err)
		}
	}
	return nil
}

// Connect connects. With Retry the connection lasts until it is closed:
// reconnects never give up, wait with jitter, and are not ended by a refusal,
// which may be a server in the middle of a change of keys. Nothing that is
// published while there is no server is kept: a status is of no use later.
func Connect(a Access, c Client) (*nats.Conn, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	if a.URL == "" {
		a.URL = DefaultURL
	}
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	seed := &key{file: a.NKey, log: log}
	opts := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(2 * time.Second),
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			log.Warn("nats", "subject", subject, "err", err)
			if c.Refused != nil && errors.Is(err, nats.ErrPermissionViolation) {
				c.Refused(err)
			}
		}),
	}
	connected := func(n *nats.Conn) {
		log.Info("nats: connected", "server", n.ConnectedUrlRedacted())
		if c.Connected != nil {
			c.Connected()
		}
	}
	if c.Retry {
		opts = append(opts,
			nats.RetryOnFailedConnect(true),
			nats.MaxReconnects(-1),
			nats.CustomReconnectDelay(func(int) time.Duration {
				seed.renew()
				return reconnectWait + rand.N(reconnectJitter)
			}),
			nats.IgnoreAuthErrorAbort(),
			nats.PingInterval(5*time.Second),
			nats.MaxPingsOutstanding(2),
			nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
				if err != nil {
					log.Warn("nats: disconnected, will keep trying", "err", err)
				}
			}),
			nats.ReconnectHandler(connected),
			nats.ConnectHandler(connected),
		)
	} else {
		opts = append(opts, nats.NoReconnect())
	}
	if a.Credentials != "" {
		opts = append(opts, nats.UserCredentials(a.Credentials))
	}
	if a.NKey != "" {
		o, err := seed.options(c.Inbox)
		if err != nil {
			return nil, err
		}
		opts = append(opts, o...)
	}
	if a.CA != "" {
		opts = append(opts, nats.RootCAs(a.CA))
	}
	if a.Cert != "" {
		opts = append(opts, nats.ClientCert(a.Cert, a.Key))
	}
	nc, err := nats.Connect(a.URL, append(opts, c.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w%s", redact(a.URL), err, remedy(err))
	}
	seed.conn.Store(nc)
	return nc, nil
}

// redact hides user names and passwords in a list of URLs.
func redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, u := range list {
		scheme, rest, found := strings.Cut(u, "://")
		if !found {
			scheme, rest = "", u
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = "xxxxx@" + rest[at+1:]
		}
		if found {
			rest = scheme + "://" + rest
		}
		list[i] = rest
	}
	return strings.Join(list, ",")
}

func remedy(err error) string {
	switch {
	case errors.Is(err, nats.ErrNoServers):
		return ": is rocelinkd (or another NATS server) running there?"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported):
		return ": give the credentials this server wants"
	case strings.Contains(err.Error(), "x509: certificate signed by unknown authority"), errors.Is(err, nats.ErrSecureConnRequired):
		return ": give the certificates that sign the server's (tls-ca)"
	}
	return ""
}
