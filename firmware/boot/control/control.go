// Package control is how boardd and process 1 of a board talk: one request a
// connection over a Unix socket, one line there and one line back. Every wait
// has a bound.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Requests that end the machine's run.
const (
	Reboot   = "reboot"
	PowerOff = "power-off"
	Halt     = "halt"
)

// Confirm tells that the image that runs works: process 1 no longer waits for it.
const Confirm = "confirm"

// timeWord begins an offer of the time, Unix milliseconds after it.
const timeWord = "time "

const (
	status  = "status"
	maxLine = 64 << 10
	// wait bounds one exchange on either side.
	wait = 2 * time.Second
	// maxClients bounds those served at the same time.
	maxClients = 8
)

// Errors of requests.
var (
	// ErrUnknown: there is no such request.
	ErrUnknown = errors.New("unknown request")
	// ErrRefused: process 1 refused the request; the text says why.
	ErrRefused = errors.New("refused by process 1")
)

// Status is the state of the board's system.
type Status struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`  // of the image
	Problems []string `json:"problems"` // of the configuration: the sender stays off
	Faults   []string `json:"faults"`   // of the system
	Safe     bool     `json:"safe"`     // boardd ended too often
	Restarts uint64   `json:"restarts"` // of boardd
	// ClockSet: the time is right; until then certificates cannot be checked.
	ClockSet  bool   `json:"clock_set"`
	Interface string `json:"interface"` // "": no network yet
	Address   string `json:"address"`
}

// Handler is process 1.
type Handler interface {
	// Reset accepts one of the requests above, or refuses it. It does not wait
	// until it is carried out.
	Reset(request string) error
	// Confirmed takes note that the image works.
	Confirmed()
	// OfferTime takes the time by somebody's clock, or refuses it.
	OfferTime(time.Time) error
	Status() Status
}

// Serve answers requests until the listener is closed.
func Serve(l net.Listener, h Handler) {
	var clients sync.WaitGroup
	defer clients.Wait()
	slots := make(chan struct{}, maxClients)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
			return
		}
		if err != nil {
			// Out of descriptors or memory: wait for better times.
			time.Sleep(wait)
			continue
		}
		select {
		case slots <- struct{}{}:
			clients.Go(func() {
				defer func() { <-slots }()
				answer(c, h)
			})
		default:
			_ = c.Close()
		}
	}
}

func answer(c net.Conn, h Handler) {
	defer c.Close()
	if c.SetDeadline(time.Now().Add(wait)) != nil {
		return
	}
	line, err := readLine(c)
	if err != nil {
		return
	}
	reply := "ok"
	if line == status {
		data, err := json.Marshal(h.Status())
		if err != nil {
			data = []byte("{}")
		}
		reply = "ok " + string(data)
	} else if err := perform(line, h); err != nil {
		reply = "error " + err.Error()
	}
	// A client that is gone has asked all the same.
	_, _ = io.WriteString(c, strings.ReplaceAll(reply, "\n", " ")+"\n")
}

// perform carries out what has no answer but that it was done.
func perform(line string, h Handler) error {
	if line == Confirm {
		h.Confirmed()
		return nil
	}
	text, ok := strings.CutPrefix(line, timeWord)
	if !ok {
		return h.Reset(line)
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("time %.40q: want Unix milliseconds", text)
	}
	return h.OfferTime(time.UnixMilli(ms))
}

func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxLine)).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// Ask makes a request of process 1, whose socket is at path.
func Ask(ctx context.Context, path, request string) error {
	_, err := ask(ctx, path, request)
	return err
}

// Offer offers process 1 the time.
func Offer(ctx context.Context, path string, t time.Time) error {
	return Ask(ctx, path, timeWord+strconv.FormatInt(t.UnixMilli(), 10))
}

// Query asks process 1 for the system's state.
func Query(ctx context.Context, path string) (Status, error) {
	var s Status
	text, err := ask(ctx, path, status)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("state from process 1: %w", err)
	}
	return s, nil
}

func ask(ctx context.Context, path, request string) (string, error) {
	if strings.ContainsAny(request, "\n") {
		return "", fmt.Errorf("request %q: %w", request, ErrUnknown)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return "", fmt.Errorf("ask process 1 to %s: %w", request, err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if _, err := io.WriteString(c, request+"\n"); err != nil {
		return "", fmt.Errorf("ask process 1 to %s: %w", request, err)
	}
	line, err := readLine(c)
	if err != nil {
		return "", fmt.Errorf("ask process 1 to %s: no answer: %w", request, err)
	}
	verdict, text, _ := strings.Cut(line, " ")
	switch verdict {
	case "ok":
		return text, nil
	case "error":
		return "", fmt.Errorf("ask process 1 to %s: %s: %w", request, text, ErrRefused)
	}
	return "", fmt.Errorf("ask process 1 to %s: %.80q is no answer", request, line)
}
