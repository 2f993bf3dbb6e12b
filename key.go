package rocelink

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// key proves who a client is by the seed in a file. The file may be replaced at
// any time: the next connection uses what it holds then, so that a key that the
// server retires is exchanged without a restart.
type key struct {
	file   string
	log    *slog.Logger
	conn   atomic.Pointer[nats.Conn]
	public atomic.Pointer[string] // of the last good seed
}

// maxSeed is more than a seed with comments has.
const maxSeed = 4 << 10

// pair reads the file. The text of the file is never part of an error.
func (k *key) pair() (nkeys.KeyPair, string, error) {
	fail := func(err error) (nkeys.KeyPair, string, error) {
		return nil, "", fmt.Errorf("nkey file %s: %w: it holds one line that begins with SU", k.file, err)
	}
	text, err := os.ReadFile(k.file)
	if err != nil {
		return nil, "", fmt.Errorf("nkey file: %w", err)
	}
	defer clear(text)
	if len(text) > maxSeed {
		return fail(errors.New("too long"))
	}
	pair, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		if pair, err = nkeys.FromSeed(bytes.TrimSpace(text)); err != nil {
			return fail(err)
		}
	}
	public, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return fail(errors.New("not the seed of a user"))
	}
	return pair, public, nil
}

func (k *key) options(inbox string) ([]nats.Option, error) {
	pair, public, err := k.pair()
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	pair.Wipe()
	k.public.Store(&public)
	if inbox == "" {
		inbox = KeyInbox(public)
	}
	return []nats.Option{nats.Nkey(public, k.sign), nats.CustomInboxPrefix(inbox)}, nil
}

func (k *key) sign(nonce []byte) ([]byte, error) {
	pair, public, err := k.pair()
	if err != nil {
		return nil, err
	}
	defer pair.Wipe()
	if public != *k.public.Load() {
		return nil, fmt.Errorf("nkey file %s was replaced: the next attempt uses it", k.file)
	}
	return pair.Sign(nonce)
}

// renew looks at the file before a connection is tried again. Only the
// goroutine that connects calls it, and no one else uses the field it sets.
func (k *key) renew() {
	nc := k.conn.Load()
	if k.file == "" || nc == nil {
		return
	}
	pair, public, err := k.pair()
	if err != nil {
		k.log.Warn("nats: the key is not read anew", "err", err)
		return
	}
	pair.Wipe()
	if public == *k.public.Load() {
		return
	}
	k.log.Info("nats: another key is used from now on", "file", k.file)
	k.public.Store(&public)
	nc.Opts.Nkey = public
}
