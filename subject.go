package rocelink

import (
	"errors"
	"fmt"
	"strings"
)

// Root is the first part of every subject.
const Root = "rocelink.v1"

// ErrToken: a token is not the encoding of any name.
var ErrToken = errors.New("not an encoded name")

const hexDigits = "0123456789ABCDEF"

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// Token encodes a name (host name, MAC, address, anything) so that it is one
// safe token of a NATS subject and a safe key of a key-value bucket: letters,
// digits and '-' stay, any other byte becomes '_' and two hexadecimal digits,
// the empty name is "_". The encoding is unique and ParseToken undoes it.
func Token(name string) string {
	if name == "" {
		return "_"
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('_')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// ParseToken returns the name that Token encoded. ErrToken is returned for
// anything that Token does not make.
func ParseToken(token string) (string, error) {
	if token == "_" {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		if plain(c) {
			b.WriteByte(c)
			continue
		}
		if c == '_' && i+2 < len(token) {
			hi, lo := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
			if hi >= 0 && lo >= 0 && !plain(byte(hi<<4|lo)) {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		return "", fmt.Errorf("token %.80q at %d: %w", token, i, ErrToken)
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("empty token: %w", ErrToken)
	}
	return b.String(), nil
}

// Subjects on which records are published. The arguments are names, not
// tokens; "*" as an argument is encoded like any other name, use the Any*
// constants to subscribe to all.
const (
	AnyBoardStatus = Root + ".board.*.status"
	AnyBoardEvent  = Root + ".board.*.event"
	AnyHostStatus  = Root + ".host.*.status"
	AnyHostEvent   = Root + ".host.*.event"
	AnyWindow      = Root + ".host.*.stream.*"
)

// BoardStatusSubject carries the BoardStatus of a board.
func BoardStatusSubject(board string) string { return Root + ".board." + Token(board) + ".status" }

// BoardEventSubject carries the Events of a board.
func BoardEventSubject(board string) string { return Root + ".board." + Token(board) + ".event" }

// HostStatusSubject carries the HostStatus of an agent.
func HostStatusSubject(host string) string { return Root + ".host." + Token(host) + ".status" }

// HostEventSubject carries the Events of an agent.
func HostEventSubject(host string) string { return Root + ".host." + Token(host) + ".event" }

// WindowSubject carries the Windows of one stream of an agent.
func WindowSubject(host, stream string) string {
	return Root + ".host." + Token(host) + ".stream." + Token(stream)
}

// WindowSubjects matches the Windows of all streams of an agent.
func WindowSubjects(host string) string { return Root + ".host." + Token(host) + ".stream.*" }

// AnyRequest matches requests to one endpoint of every board.
func AnyRequest(endpoint string) string { return Root + ".board.*.request." + endpoint }

// Prefixes of the subjects on which a client takes replies; nobody else is
// allowed to listen there.

// BoardInbox is that of a board.
func BoardInbox(board string) string { return "_INBOX.board." + Token(board) }

// HostInbox is that of an agent.
func HostInbox(host string) string { return "_INBOX.host." + Token(host) }

// KeyInbox is that of whoever has the key, by its public part.
func KeyInbox(public string) string { return "_INBOX.key." + public }

// RequestSubject is where a board answers an endpoint of its micro service.
func RequestSubject(board, endpoint string) string {
	return Root + ".board." + Token(board) + ".request." + endpoint
}

// ServiceName is the name of the NATS micro service of a board.
const ServiceName = "rocelink-board"

// EventStream is the JetStream stream with the Events of boards and hosts, where
// the server has JetStream.
const EventStream = "rocelink-events"

// StatusBucket is the JetStream key-value bucket with the last state of each
// board ("board.<token>") and host ("host.<token>"), where the server has
// JetStream.
const StatusBucket = "rocelink-status"
