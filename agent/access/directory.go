// Package access keeps who may do what at the NATS server: an nkey for each
// board, agent, operator and observer with the least permissions it needs, and
// TLS by a certificate authority of its own. It is a directory of files, from
// which the server's configuration follows.
//
// Every change is written whole or not at all; private keys are readable by
// their owner only and never leave the directory by other ways.
package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/nkeys"

	"rocelink"
)

// Errors of this package.
var (
	ErrExists  = errors.New("exists already")
	ErrUnknown = errors.New("not there")
	ErrInvalid = errors.New("not valid")
)

// Files of a directory, by their names in it.
const (
	stateFile = "access.json"
	caFile    = "ca.pem"
	caKeyFile = "ca-key.pem"
	// ServerConfig is the configuration for nats-server and for rocelinkd's
	// server inside (nats.server, --nats-config).
	ServerConfig  = "server/nats-server.conf"
	serverCert    = "server/server.pem"
	serverKeyFile = "server/server-key.pem"
	// SeedFile and CAFile are a user's nkey and what it trusts, in its folder.
	SeedFile = "rocelink.nk"
	CAFile   = "ca.pem"
	// BoardConfig is the settings for a board's card.
	BoardConfig = "rocelink.yaml"
)

// maxKeys is how many keys of a user are valid at once: one to retire and one
// to use.
const maxKeys = 2

// User is someone at the server.
type User struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Keys are the public keys that are valid, newest last.
	Keys []string `json:"keys"`
	// Boards are those an agent may run streams on; none means all.
	Boards []string `json:"boards,omitempty"`
}

// Server is what the server's configuration says beside the users.
type Server struct {
	// Hosts are the names and addresses in the server's certificate.
	Hosts []string `json:"hosts"`
	// Listen is host:port.
	Listen string `json:"listen"`
	// Store is the folder for JetStream, absolute; "" without.
	Store string `json:"store,omitempty"`
}

// Directory is an open directory of access.
type Directory struct {
	dir   string
	state state
}

type state struct {
	Version int    `json:"version"`
	Server  Server `json:"server"`
	Users   []User `json:"users"`
}

// Init makes a new directory: authority, server certificate, configuration
// without users.
func Init(dir string, s Server) (*Directory, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(abs, stateFile)); err == nil {
		return nil, fmt.Errorf("access: %s: %w: rocectl access add extends it", filepath.Join(abs, stateFile), ErrExists)
	}
	// The server and an agent, which may run as other users, pass through to
	// folders that are theirs.
	for sub, mode := range map[string]os.FileMode{"": 0o711, "users": 0o711, "server": 0o700} {
		if err := os.MkdirAll(filepath.Join(abs, sub), mode); err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
	}
	d := &Directory{dir: abs, state: state{Version: 1, Server: s}}
	if err := d.makeAuthority(); err != nil {
		return nil, err
	}
	if err := d.makeServerCertificate(); err != nil {
		return nil, err
	}
	return d, d.save()
}

// Open opens a directory that Init made.
func Open(dir string) (*Directory, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(abs, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("access: %s: %w: rocectl access init makes it", filepath.Join(abs, stateFile), ErrUnknown)
	}
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	d := &Directory{dir: abs}
	if err := json.Unmarshal(data, &d.state); err != nil {
		return nil, fmt.Errorf("access: %s: %w: %w", stateFile, ErrInvalid, err)
	}
	if err := d.state.check(); err != nil {
		return nil, fmt.Errorf("access: %s: %w", stateFile, err)
	}
	return d, nil
}

// Path is the absolute path of a file of the directory.
func (d *Directory) Path(name string) string { return filepath.Join(d.dir, name) }

// Folder is where a user's files are.
func (d *Directory) Folder(kind Kind, name string) string {
	return filepath.Join(d.dir, "users", string(kind)+"-"+rocelink.Token(name))
}

// Users are all users, by kind and name.
func (d *Directory) Users() []User { return slices.Clone(d.state.Users) }

// Server is what the directory was made for.
func (d *Directory) Server() Server { return d.state.Server }

func (d *Directory) find(kind Kind, name string) (int, error) {
	i := slices.IndexFunc(d.state.Users, func(u User) bool { return u.Kind == kind && u.Name == name })
	if i < 0 {
		return -1, fmt.Errorf("access: %s %q: %w", kind, name, ErrUnknown)
	}
	return i, nil
}

// Add makes a user with a key and returns the folder with what it needs.
func (d *Directory) Add(kind Kind, name string, boards ...string) (string, error) {
	u := User{Kind: kind, Name: name, Boards: boards}
	if err := u.check(); err != nil {
		return "", err
	}
	if _, err := d.find(kind, name); err == nil {
		return "", fmt.Errorf("access: %s %q: %w: rotate gives it a new key", kind, name, ErrExists)
	}
	seed, public, err := newKey()
	if err != nil {
		return "", err
	}
	u.Keys = []string{public}
	folder := d.Folder(kind, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("access: %w", err)
	}
	if err := d.writeUser(u, seed); err != nil {
		return "", err
	}
	before := d.state.Users
	d.state.Users = append(slices.Clone(before), u)
	slices.SortFunc(d.state.Users, byKindAndName)
	if err := d.save(); err != nil {
		d.state.Users = before
		return "", err
	}
	return folder, nil
}

// Rotate gives a user a new key; the one before stays valid until Retire, so
// that the user can be given the new one meanwhile.
func (d *Directory) Rotate(kind Kind, name string) (string, error) {
	return d.change(kind, name, func(u *User) (string, error) {
		seed, public, err := newKey()
		if err != nil {
			return "", err
		}
		u.Keys = append(u.Keys, public)
		u.Keys = u.Keys[max(0, len(u.Keys)-maxKeys):]
		return seed, nil
	})
}

// Retire ends every key of a user but the newest.
func (d *Directory) Retire(kind Kind, name string) error {
	_, err := d.change(kind, name, func(u *User) (string, error) {
		u.Keys = u.Keys[len(u.Keys)-1:]
		return "", nil
	})
	return err
}

func (d *Directory) change(kind Kind, name string, fn func(*User) (seed string, err error)) (string, error) {
	i, err := d.find(kind, name)
	if err != nil {
		return "", err
	}
	u := d.state.Users[i]
	u.Keys = slices.Clone(u.Keys)
	seed, err := fn(&u)
	if err != nil {
		return "", err
	}
	if seed != "" {
		if err := d.writeUser(u, seed); err != nil {
			return "", err
		}
	}
	before := d.state.Users
	d.state.Users = slices.Clone(before)
	d.state.Users[i] = u
	if err := d.save(); err != nil {
		d.state.Users = before
		return "", err
	}
	return d.Folder(kind, name), nil
}

// Remove ends a user and removes its files.
func (d *Directory) Remove(kind Kind, name string) error {
	i, err := d.find(kind, name)
	if err != nil {
		return err
	}
	before := d.state.Users
	d.state.Users = slices.Delete(slices.Clone(before), i, i+1)
	if err := d.save(); err != nil {
		d.state.Users = before
		return err
	}
	if err := os.RemoveAll(d.Folder(kind, name)); err != nil {
		return fmt.Errorf("access: %s %q is no user any more, but its files: %w", kind, name, err)
	}
	return nil
}

// Renew makes a new server certificate by the same authority; nobody else needs
// to change anything. Hosts, if any, replace those before.
func (d *Directory) Renew(hosts ...string) error {
	if len(hosts) > 0 {
		s := d.state.Server
		s.Hosts = hosts
		if err := s.check(); err != nil {
			return err
		}
		d.state.Server = s
	}
	if err := d.makeServerCertificate(); err != nil {
		return err
	}
	return d.save()
}

func newKey() (seed, public string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", "", fmt.Errorf("access: make a key: %w", err)
	}
	defer pair.Wipe()
	s, err := pair.Seed()
	if err == nil {
		public, err = pair.PublicKey()
	}
	if err != nil {
		return "", "", fmt.Errorf("access: make a key: %w", err)
	}
	return string(s), public, nil
}

// writeUser writes the files a user takes with it.
func (d *Directory) writeUser(u User, seed string) error {
	folder := d.Folder(u.Kind, u.Name)
	ca, err := os.ReadFile(d.Path(caFile))
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	if err := replace(filepath.Join(folder, CAFile), ca, 0o644); err != nil {
		return err
	}
	if u.Kind == Board {
		if err := replace(filepath.Join(folder, BoardConfig), d.boardConfig(u.Name), 0o644); err != nil {
			return err
		}
	}
	return replace(filepath.Join(folder, SeedFile), []byte(seed+"\n"), 0o600)
}

// save writes the server's configuration and then the state.
func (d *Directory) save() error {
	if err := replace(d.Path(ServerConfig), d.serverConfig(), 0o600); err != nil {
		return err
	}
	data, err := json.MarshalIndent(d.state, "", "  ")
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	return replace(d.Path(stateFile), append(data, '\n'), 0o600)
}

// replace writes a file so that it is there whole or as before.
func replace(name string, data []byte, mode os.FileMode) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("access: write %s: %w", name, err)
		}
	}()
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
