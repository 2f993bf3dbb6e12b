package access

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// serverConfig writes nats-server's configuration. Strings are quoted as JSON
// does, which its parser takes.
func (d *Directory) serverConfig() []byte {
	var b bytes.Buffer
	s := d.state.Server
	fmt.Fprintf(&b, "# Written by rocectl access; the next change overwrites it.\n")
	fmt.Fprintf(&b, "# After a change: systemctl reload rocelinkd, or nats-server --signal reload.\n\n")
	fmt.Fprintf(&b, "listen: %s\n", quote(s.Listen))
	fmt.Fprintf(&b, "max_payload: 1MB\n")
	if s.Store != "" {
		fmt.Fprintf(&b, "jetstream { store_dir: %s }\n", quote(s.Store))
	}
	fmt.Fprintf(&b, "tls {\n  cert_file: %s\n  key_file: %s\n  timeout: 5\n}\n\n", quote(d.Path(serverCert)), quote(d.Path(serverKeyFile)))
	fmt.Fprintf(&b, "authorization {\n  timeout: 5\n  users: [\n")
	for _, u := range d.state.Users {
		for _, key := range u.Keys {
			r := rulesFor(u, key)
			fmt.Fprintf(&b, "    # %s %s\n    {\n      nkey: %s\n      permissions: {\n", u.Kind, strconv.QuoteToASCII(u.Name), key)
			fmt.Fprintf(&b, "        publish: { allow: %s }\n", list(r.publish))
			fmt.Fprintf(&b, "        subscribe: { allow: %s }\n", list(r.subscribe))
			if r.responses {
				fmt.Fprintf(&b, "        allow_responses: { max: 1, expires: \"2m\" }\n")
			}
			fmt.Fprintf(&b, "      }\n    }\n")
		}
	}
	fmt.Fprintf(&b, "  ]\n}\n")
	return b.Bytes()
}

func list(subjects []string) string {
	if len(subjects) == 0 {
		return "[]"
	}
	var b strings.Builder
	b.WriteString("[\n")
	for _, s := range subjects {
		fmt.Fprintf(&b, "          %s\n", quote(s))
	}
	b.WriteString("        ]")
	return b.String()
}

func quote(s string) string { return strconv.Quote(s) }

// URL is how a client reaches the server.
func (d *Directory) URL() string {
	_, port, err := net.SplitHostPort(d.state.Server.Listen)
	if err != nil {
		port = "4222"
	}
	return "tls://" + net.JoinHostPort(strings.TrimPrefix(d.state.Server.Hosts[0], "*."), port)
}

// boardConfig is what the configuration on the board's card must say
// (firmware/boot).
func (d *Directory) boardConfig(name string) []byte {
	return fmt.Appendf(nil, "# For the card of a board: copy this file, %s and %s there, or these lines into\n# the configuration that it has.\nname: %s\nnats: %s\nnkey: %s\ntls-ca: %s\n",
		SeedFile, CAFile, quote(name), quote(d.URL()), SeedFile, CAFile)
}
