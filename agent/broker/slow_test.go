package broker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A subscriber that never reads is dropped; who publishes and who reads do not
// notice.
func TestSubscriberThatNeverReads(t *testing.T) {
	b, err := Start(Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	deaf, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	fmt.Fprintf(deaf, "CONNECT {\"verbose\":false}\r\nSUB x 1\r\nPING\r\n")
	for in := bufio.NewReader(deaf); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "PONG") {
			break // from here on it reads nothing
		}
	}
	nc, err := nats.Connect(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync("x")
	if err != nil {
		t.Fatal(err)
	}
	const messages, size = 2000, 64 << 10 // more than the server keeps for one client
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	slowest := time.Duration(0)
	for range messages {
		began := time.Now()
		if err := nc.Publish("x", data); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.NextMsg(10 * time.Second); err != nil || len(m.Data) != size {
			t.Fatalf("the reader is held up by the one that does not read: %v", err)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("slowest message %v", slowest)
	// What it was sent is still in its socket, and then the end.
	if err := deaf.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var late net.Error
	if _, err := io.Copy(io.Discard, deaf); errors.As(err, &late) && late.Timeout() {
		t.Fatal("the server keeps a client that does not read")
	}
	if b.server.NumSlowConsumers() == 0 {
		t.Error("the server does not count it")
	}
}
