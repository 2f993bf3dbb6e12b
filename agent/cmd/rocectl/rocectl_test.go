package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"rocelink"
	"rocelink/agent/broker"
	"rocelink/agent/report"
)

// run runs rocectl and returns what it printed and its exit code.
func run(ctx context.Context, args ...string) (string, int, error) {
	var out bytes.Buffer
	c := command()
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	code := 0
	var e exitError
	if errors.As(err, &e) {
		code = e.code
	} else if err != nil {
		code = exitFailed
	}
	return out.String(), code, err
}

// server is a NATS server on which a board and a host publish four times a second.
func server(t *testing.T, board *rocelink.BoardStatus) (url string, nc *nats.Conn) {
	t.Helper()
	b, err := broker.Start(broker.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if nc, err = nats.Connect(b.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if board == nil {
		return b.URL(), nc
	}
	publish := func(subject string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		_ = nc.Publish(subject, data)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	tick := time.NewTicker(250 * time.Millisecond)
	go func() {
		defer tick.Stop()
		for {
			publish(rocelink.BoardStatusSubject(board.Board), board)
			publish(rocelink.HostStatusSubject("h"), rocelink.HostStatus{Version: 1, Host: "h", Device: rocelink.Device{Active: true}})
			publish(rocelink.WindowSubject("h", "s"), rocelink.Window{Version: 1, Host: "h", Stream: "s", Messages: 7})
			publish(rocelink.WindowSubject("h", "other"), rocelink.Window{Version: 1, Host: "h", Stream: "other"})
			publish(rocelink.BoardEventSubject(board.Board), rocelink.Event{Version: 1, From: board.Board, Kind: "link-up", Text: "good"})
			_ = nc.Publish(rocelink.BoardStatusSubject("odd"), []byte("{"))
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	}()
	return b.URL(), nc
}

func healthy() *rocelink.BoardStatus {
	return &rocelink.BoardStatus{Version: 1, Board: "demo", Fabric: rocelink.Fabric{Present: true}, Link: rocelink.Link{Up: true}}
}

func TestStatus(t *testing.T) {
	url, _ := server(t, healthy())
	out, code, err := run(t.Context(), "status", "--nats", url)
	if code != 0 || !strings.Contains(out, "board demo") || !strings.Contains(out, "host h") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	out, code, err = run(t.Context(), "status", "--nats", url, "--json")
	var s report.Snapshot
	if jsonErr := json.Unmarshal([]byte(out), &s); code != 0 || jsonErr != nil || len(s.Boards) != 1 || len(s.Hosts) != 1 {
		t.Errorf("exit %d, %v, %v\n%s", code, err, jsonErr, out)
	}
}

func TestStatusOfWhatIsNotInOrder(t *testing.T) {
	down := healthy()
	down.Link = rocelink.Link{State: "aligning", Problem: "no light"}
	url, _ := server(t, down)
	if out, code, _ := run(t.Context(), "status", "--nats", url); code != exitUnhealthy || !strings.Contains(out, "no light") {
		t.Errorf("exit %d\n%s", code, out)
	}
	url, _ = server(t, nil)
	if _, code, err := run(t.Context(), "status", "--nats", url); code != exitFailed || !strings.Contains(err.Error(), "no board and no host") {
		t.Errorf("nobody there: exit %d, %v", code, err)
	}
	if _, code, err := run(t.Context(), "status", "--nats", "nats://127.0.0.1:1"); code != exitFailed || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no server: exit %d, %v", code, err)
	}
}

func TestWatch(t *testing.T) {
	url, _ := server(t, healthy())
	ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
	defer cancel()
	out, code, err := run(ctx, "watch", "--nats", url)
	if code != 0 || !strings.Contains(out, "h/s ") || !strings.Contains(out, "h/other") || !strings.Contains(out, "link-up: good") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 900*time.Millisecond)
	defer cancel()
	out, code, err = run(ctx, "watch", "--nats", url, "--stream", "s", "--json")
	if code != 0 || out == "" {
		t.Fatalf("exit %d, %v", code, err)
	}
	for line := range strings.Lines(out) {
		var w rocelink.Window
		if err := json.Unmarshal([]byte(line), &w); err != nil || w.Stream != "s" || w.Messages != 7 {
			t.Errorf("%v: %s", err, line)
		}
	}
}

func TestRegs(t *testing.T) {
	out, code, err := run(t.Context(), "regs", "core.version", "--json")
	var list []shown
	if jsonErr := json.Unmarshal([]byte(out), &list); code != 0 || jsonErr != nil || len(list) != 1 || list[0].Offset != 4 || list[0].Value != nil {
		t.Errorf("exit %d, %v, %v\n%s", code, err, jsonErr, out)
	}
	for _, bad := range []string{"nothing", "core.nothing"} {
		if _, code, err := run(t.Context(), "regs", bad); code != exitFailed {
			t.Errorf("regs %s: exit %d, %v", bad, code, err)
		}
	}
	url, nc := server(t, nil)
	_, err = nc.Subscribe(rocelink.RequestSubject("demo", rocelink.EndpointReadRegister), func(m *nats.Msg) {
		var r rocelink.RegisterRequest
		if err := rocelink.Decode(m.Data, &r); err != nil {
			t.Error(err)
		}
		data, err := json.Marshal(rocelink.RegisterReply{Version: 1, Block: r.Block, Name: r.Register, Value: 0x00010002})
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(data)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	out, code, err = run(t.Context(), "regs", "core.version", "--board", "demo", "--nats", url)
	if code != 0 || !strings.Contains(out, "0x00010002") || !strings.Contains(out, "Minor=2  Major=1") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	if _, code, err := run(t.Context(), "regs", "core.version", "--board", "nobody", "--nats", url); code != exitFailed || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("exit %d, %v", code, err)
	}
}

func TestDecode(t *testing.T) {
	// A pcap (pcap-savefile(5): magic, 2.4, Ethernet) of a SEND of one byte and of
	// the same with a flipped bit.
	frame, err := hex.DecodeString("02000000001402000000000a080045000030123440004011a46ac000020ac0000214c00012b7001c00000430ffff00000123800000005a000000cf6e4c6b")
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(frame)
	broken[54] ^= 1
	file := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	file = append(file, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0)
	for _, f := range [][]byte{frame, broken} {
		file = append(file, make([]byte, 8)...)
		file = binary.LittleEndian.AppendUint32(file, uint32(len(f)))
		file = binary.LittleEndian.AppendUint32(file, uint32(len(f)))
		file = append(file, f...)
	}
	path := filepath.Join(t.TempDir(), "x.pcap")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	out, code, err := run(t.Context(), "decode", path, "--json")
	if code != 0 {
		t.Fatalf("exit %d, %v", code, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines:\n%s", len(lines), out)
	}
	for i, line := range lines {
		var p struct {
			Frame, DestQPN, PSN, Pad, PayloadLen int
			Opcode, ICRC, Error                  string
		}
		names := strings.NewReplacer("dest_qpn", "DestQPN", "payload_len", "PayloadLen")
		if err := json.Unmarshal([]byte(names.Replace(line)), &p); err != nil {
			t.Fatal(err)
		}
		want := map[int]string{0: "ok", 1: "bad"}[i]
		if p.Frame != i+1 || p.Opcode != "SEND_ONLY" || p.DestQPN != 0x123 || p.PSN != 0 || p.Pad != 3 || p.PayloadLen != 1 || p.ICRC != want || p.Error != "" {
			t.Errorf("%+v of\n%s", p, line)
		}
	}
	if _, code, err := run(t.Context(), "decode", path+".none"); code != exitNoCapture || !strings.Contains(err.Error(), "x.pcap.none") {
		t.Errorf("no file: exit %d, %v", code, err)
	}
	if err := os.WriteFile(path, file[:len(file)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code, err := run(t.Context(), "decode", path, "--json"); code != exitNoCapture || strings.Count(out, "\n") != 1 {
		t.Errorf("cut file: exit %d, %v\n%s", code, err, out)
	}
}
