package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

type handler struct {
	mu    sync.Mutex
	asked []string
}

var errBusy = errors.New("busy\nnow")

func (h *handler) Reset(request string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, request)
	switch request {
	case Reboot, PowerOff, Halt:
		return nil
	case "busy":
		return errBusy
	}
	return ErrUnknown
}

func (h *handler) Confirmed() { _ = h.Reset(Confirm) }

func (h *handler) OfferTime(t time.Time) error {
	if t.Year() < 2000 {
		return errors.New("too early")
	}
	_ = h.Reset(t.UTC().Format(time.RFC3339))
	return nil
}

func (h *handler) Status() Status {
	return Status{Name: "a", Version: "1", Problems: []string{"p\nq"}, Restarts: 1 << 60, Safe: true}
}

func serve(t *testing.T) (string, *handler, net.Listener) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &handler{}
	done := make(chan struct{})
	go func() { defer close(done); Serve(l, h) }()
	t.Cleanup(func() { l.Close(); <-done })
	return path, h, l
}

func TestRequests(t *testing.T) {
	path, h, _ := serve(t)
	for _, r := range []string{Reboot, PowerOff, Halt} {
		if err := Ask(t.Context(), path, r); err != nil {
			t.Error(err)
		}
	}
	for r, want := range map[string]string{"dance": "unknown request", "busy": "busy now", "": "unknown request"} {
		if err := Ask(t.Context(), path, r); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", r, err)
		}
	}
	if err := Ask(t.Context(), path, "a\nreboot"); !errors.Is(err, ErrUnknown) {
		t.Errorf("two lines: %v", err)
	}
	if len(h.asked) != 6 {
		t.Errorf("%q", h.asked)
	}
	s, err := Query(t.Context(), path)
	if err != nil || !reflect.DeepEqual(s, h.Status()) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestNobodyThere(t *testing.T) {
	if err := Ask(t.Context(), filepath.Join(t.TempDir(), "none"), Reboot); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	// One that takes the request and never answers.
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Ask(ctx, l.Addr().String(), Reboot); err == nil {
		t.Error("no error without an answer")
	}
}

// A client that says nothing, or too much, keeps nobody else out.
func TestBadClients(t *testing.T) {
	path, h, _ := serve(t)
	for range maxClients - 1 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(bytes.Repeat([]byte("x"), 2*maxLine))
	_, _ = io.Copy(io.Discard, c)
	c.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		// While all are taken a request is turned away at once.
		if err := Ask(t.Context(), path, Reboot); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody is served any more")
		}
	}
	if len(h.asked) != 1 {
		t.Errorf("%d requests", len(h.asked))
	}
}

func TestConfirmAndTime(t *testing.T) {
	path, h, _ := serve(t)
	if err := Ask(t.Context(), path, Confirm); err != nil {
		t.Error(err)
	}
	if err := Offer(t.Context(), path, time.Unix(1_700_000_000, 0)); err != nil {
		t.Error(err)
	}
	if err := Offer(t.Context(), path, time.Unix(1, 0)); !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	if err := Ask(t.Context(), path, "time x"); !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asked) != 2 || h.asked[0] != Confirm || h.asked[1] != "2023-11-14T22:13:20Z" {
		t.Errorf("asked %q", h.asked)
	}
}
