package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/goccy/go-yaml"

	"rocelink"
	"rocelink/agent/stream"
)

// Config shapes an agent. Name, and a stream or two, are all most need.
type Config struct {
	// Name on NATS. Default: the host name.
	Name string `yaml:"name"`
	// Device is an RDMA device (mlx5_0), an address of one, or auto; or
	// soft:ADDRESS. Default: auto, or soft on loopback where there is none.
	Device string `yaml:"device"`
	NATS   NATS   `yaml:"nats"`
	// HTTP is host:port for the live page and the metrics; without a host it
	// is loopback. Default: none.
	HTTP string `yaml:"http"`
	// Streams to open and keep.
	Streams []stream.Spec `yaml:"streams"`

	// Once: end when every stream's source has ended.
	Once bool `yaml:"-"`
	// Summary is a file for the results, as JSON, at the end.
	Summary string `yaml:"-"`
	// Reload asks the NATS server inside to read its configuration again.
	Reload <-chan os.Signal `yaml:"-"`
	Log    *slog.Logger     `yaml:"-"`
}

// NATS says which server to use. Without URL the agent runs one itself.
type NATS struct {
	URL    string `yaml:"url"`
	Listen string `yaml:"listen"` // default 127.0.0.1:4222
	Store  string `yaml:"store"`  // folder for JetStream; "": no history
	Server string `yaml:"server"` // nats-server configuration file: users, TLS, leaf nodes

	Credentials string `yaml:"creds"`
	NKey        string `yaml:"nkey"`
	CA          string `yaml:"tls-ca"`
	Cert        string `yaml:"tls-cert"`
	Key         string `yaml:"tls-key"`
}

func (n NATS) access(url string) rocelink.Access {
	return rocelink.Access{URL: url, Credentials: n.Credentials, NKey: n.NKey, CA: n.CA, Cert: n.Cert, Key: n.Key}
}

// ErrConfig: a setting is wrong; the text names it.
var ErrConfig = errors.New("bad configuration")

const maxConfig = 1 << 20

// Load reads a configuration file over c. A key it does not know is refused.
func (c *Config) Load(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	return c.Parse(file, data)
}

// Parse reads the text of a configuration file over c.
func (c *Config) Parse(file string, data []byte) error {
	if len(data) > maxConfig {
		return fmt.Errorf("%s: %w: %d bytes, at most %d", file, ErrConfig, len(data), maxConfig)
	}
	if err := yaml.UnmarshalWithOptions(data, c, yaml.Strict()); err != nil {
		return fmt.Errorf("%s: %w: %w", file, ErrConfig, err)
	}
	return nil
}

// complete fills in defaults and checks what can be checked before anything is
// opened.
func (c Config) complete() (Config, error) {
	if c.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("%w: no name is given and the host has none: %w", ErrConfig, err)
		}
		c.Name = name
	}
	if err := rocelink.CheckName("host", c.Name); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.NATS.URL != "" && (c.NATS.Listen != "" || c.NATS.Store != "" || c.NATS.Server != "") {
		return c, fmt.Errorf("%w: give the URL of another NATS server, or settings for the one inside, not both", ErrConfig)
	}
	if c.Once && len(c.Streams) == 0 {
		return c, fmt.Errorf("%w: once without a stream would end at once", ErrConfig)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	streams, err := stream.CompleteAll(c.Streams)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	c.Streams = streams
	return c, nil
}
