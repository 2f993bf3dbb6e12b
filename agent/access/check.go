package access

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nkeys"

	"rocelink"
)

func byKindAndName(a, b User) int {
	return cmp.Or(cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), strings.Compare(a.Name, b.Name))
}

func (s Server) check() error {
	if len(s.Hosts) == 0 {
		return fmt.Errorf("access: no host: %w: give the names and addresses by which the server is reached", ErrInvalid)
	}
	for _, h := range s.Hosts {
		if net.ParseIP(h) == nil && !hostName(h) {
			return fmt.Errorf("access: host %.80q: %w: want a host name or an IP address", h, ErrInvalid)
		}
	}
	_, port, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return fmt.Errorf("access: listen address %.80q: %w: write host:port", s.Listen, ErrInvalid)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("access: listen address %.80q: %w: port is not 1 to 65535", s.Listen, ErrInvalid)
	}
	if s.Store != "" && !filepath.IsAbs(s.Store) {
		return fmt.Errorf("access: store %.80q: %w: give an absolute path", s.Store, ErrInvalid)
	}
	return nil
}

// hostName follows RFC 1123, section 2.1; a leading "*." is a wildcard.
func hostName(h string) bool {
	h = strings.TrimPrefix(h, "*.")
	if h == "" || len(h) > 253 {
		return false
	}
	for label := range strings.SplitSeq(h, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
				return false
			}
		}
	}
	return true
}

func (u User) check() error {
	if !slices.Contains(Kinds, u.Kind) {
		return fmt.Errorf("access: kind %.40q: %w: want board, agent, operator or observer", string(u.Kind), ErrInvalid)
	}
	if err := rocelink.CheckName(string(u.Kind), u.Name); err != nil {
		return fmt.Errorf("access: %w: %w", ErrInvalid, err)
	}
	if len(u.Boards) > 0 && u.Kind != Agent {
		return fmt.Errorf("access: %s %q: %w: only an agent is given boards", u.Kind, u.Name, ErrInvalid)
	}
	for _, b := range u.Boards {
		if err := rocelink.CheckName("board", b); err != nil {
			return fmt.Errorf("access: %w: %w", ErrInvalid, err)
		}
	}
	return nil
}

// check is for a state that a person may have edited.
func (s state) check() error {
	if s.Version != 1 {
		return fmt.Errorf("version %d: %w: this program speaks 1", s.Version, ErrInvalid)
	}
	if err := s.Server.check(); err != nil {
		return err
	}
	keys, users := map[string]bool{}, map[string]bool{}
	for _, u := range s.Users {
		if err := u.check(); err != nil {
			return err
		}
		if id := string(u.Kind) + " " + u.Name; users[id] {
			return fmt.Errorf("%s: %w: there twice", id, ErrInvalid)
		} else {
			users[id] = true
		}
		if len(u.Keys) == 0 || len(u.Keys) > maxKeys {
			return fmt.Errorf("%s %q: %d keys: %w: want 1 or %d", u.Kind, u.Name, len(u.Keys), ErrInvalid, maxKeys)
		}
		for _, k := range u.Keys {
			if !nkeys.IsValidPublicUserKey(k) {
				return fmt.Errorf("%s %q: key %.60q: %w: want a public user key, which begins with U", u.Kind, u.Name, k, ErrInvalid)
			}
			if keys[k] {
				return fmt.Errorf("%s %q: key %s: %w: there twice", u.Kind, u.Name, k, ErrInvalid)
			}
			keys[k] = true
		}
	}
	return nil
}
