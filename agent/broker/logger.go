package broker

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
)

// logger passes what the server says of trouble on; its notices are of no
// interest inside another program.
type logger struct {
	log     *slog.Logger
	refused func(Refusal)
}

func (l logger) Noticef(format string, v ...any) {
	l.log.Debug("nats server: " + fmt.Sprintf(format, v...))
}
func (l logger) Warnf(format string, v ...any) {
	l.log.Warn("nats server: " + fmt.Sprintf(format, v...))
}
func (l logger) Fatalf(format string, v ...any) {
	l.log.Error("nats server: " + fmt.Sprintf(format, v...))
}
func (l logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Error("nats server: " + text)
	if l.refused == nil {
		return
	}
	if r, ok := parseRefusal(text); ok {
		l.refused(r)
	}
}
func (l logger) Debugf(string, ...any) {}
func (l logger) Tracef(string, ...any) {}

// Refusal is something the server did not permit.
type Refusal struct {
	Client  string // its address, as host:port
	Name    string // as it calls itself; may be anything
	Key     string // its public nkey, if it has shown one
	Action  string // connect, publish or subscribe
	Subject string // of the last two
}

// String is a sentence.
func (r Refusal) String() string {
	who := r.Client
	if r.Name != "" {
		who = fmt.Sprintf("%q at %s", r.Name, r.Client)
	}
	if r.Action == "connect" {
		return fmt.Sprintf("%s was not let in: its key is not known to the server", who)
	}
	return fmt.Sprintf("%s may not %s %s", who, r.Action, r.Subject)
}

// parseRefusal understands the server's messages about refusals: its log is the
// only place where it tells of those. They look like
//
//	127.0.0.1:1 - cid:5 - "v1.55.0:go:boardd b1" - "$G/nkey:UABC" - Publish Violation - Subject "x"
//	127.0.0.1:1 - cid:5 - authentication error - Nkey "UABC"
//
// (nats-server v2, client.go); a test against the server itself keeps it so.
func parseRefusal(text string) (Refusal, bool) {
	var r Refusal
	part, rest, ok := strings.Cut(text, " - ")
	if !ok {
		return r, false
	}
	r.Client = part
	for rest != "" {
		if strings.HasPrefix(rest, "\"") {
			quoted, after, ok := cutQuoted(rest)
			if !ok {
				return r, false
			}
			rest = strings.TrimPrefix(after, " - ")
			// The key's label has the account in front.
			if _, key, ok := strings.Cut(quoted, "/nkey:"); ok {
				r.Key = key
			} else if r.Name == "" {
				// Version and language of its library go before the name.
				if f := strings.SplitN(quoted, ":", 3); len(f) == 3 {
					r.Name = f[2]
				}
			}
			continue
		}
		part, rest, _ = strings.Cut(rest, " - ")
		switch {
		case part == "Publish Violation", part == "Subscription Violation":
			r.Action = map[bool]string{true: "publish", false: "subscribe"}[part == "Publish Violation"]
			_, after, _ := strings.Cut(rest, "Subject ")
			subject, _, ok := cutQuoted(after)
			r.Subject = subject
			return r, ok
		case strings.HasPrefix(part, "authentication error"):
			r.Action = "connect"
			if _, after, ok := strings.Cut(rest, "Nkey "); ok {
				r.Key, _, _ = cutQuoted(after)
			}
			return r, true
		}
	}
	return r, false
}

// cutQuoted takes a Go-quoted string from the front of s.
func cutQuoted(s string) (value, rest string, ok bool) {
	prefix, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", s, false
	}
	value, err = strconv.Unquote(prefix)
	return value, s[len(prefix):], err == nil
}
