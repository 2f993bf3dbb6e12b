package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"rocelink"
	"rocelink/agent/broker"
)

// An image arrives in order and whole although a reply is lost, the board
// restarts in the middle, and pieces are small; then the board is told to restart.
func TestUpdate(t *testing.T) {
	s, err := broker.Start(broker.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	image := bytes.Repeat([]byte("an image "), 50)
	dir := t.TempDir()
	file := filepath.Join(dir, "b.itb")
	for name, data := range map[string][]byte{file: image, file + ".sig": make([]byte, 64)} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The board: all of its state is used by one goroutine.
	var got []byte
	number, pieces, restarted, power := 1, 0, false, make(chan string, 1)
	refuse := func(m *nats.Msg, code rocelink.Code, text string) {
		r := nats.NewMsg(m.Reply)
		r.Header.Set(micro.ErrorCodeHeader, string(code))
		r.Header.Set(micro.ErrorHeader, text)
		if err := nc.PublishMsg(r); err != nil {
			t.Error(err)
		}
	}
	_, err = nc.Subscribe(rocelink.RequestSubject("b", ">"), func(m *nats.Msg) {
		reply := any(nil)
		state := func(ready bool) rocelink.UpdateReply {
			return rocelink.UpdateReply{Version: rocelink.Version, Update: rocelink.Count(number), Slot: "b", Offset: rocelink.Count(len(got)), Piece: 100, Ready: ready}
		}
		switch m.Subject {
		case rocelink.RequestSubject("b", rocelink.EndpointUpdateBegin):
			reply = state(false)
		case rocelink.RequestSubject("b", rocelink.EndpointUpdateWrite):
			at, _ := strconv.Atoi(m.Header.Get(rocelink.OffsetHeader))
			if m.Header.Get(rocelink.UpdateHeader) != strconv.Itoa(number) || at != len(got) || len(m.Data) > 100 {
				refuse(m, rocelink.CodeState, "not now")
				return
			}
			got = append(got, m.Data...)
			if pieces++; pieces == 3 && !restarted {
				restarted, number, got = true, 2, nil
				refuse(m, rocelink.CodeState, "no such update")
				return
			}
			reply = state(false)
		case rocelink.RequestSubject("b", rocelink.EndpointUpdateFinish):
			reply = state(true)
		case rocelink.RequestSubject("b", rocelink.EndpointPower):
			var q rocelink.PowerRequest
			if err := json.Unmarshal(m.Data, &q); err != nil {
				t.Error(err)
			}
			power <- q.Action
			reply = rocelink.PowerReply{Version: rocelink.Version, Action: q.Action}
		}
		data, err := json.Marshal(reply)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, code, err := run(ctx, "--nats", s.URL(), "update", "b", file, "--reboot")
	if code != 0 || !strings.Contains(out, "100 %") || sha256.Sum256(got) != sha256.Sum256(image) || !restarted {
		t.Errorf("exit code %d, %v, %d bytes of %d:\n%s", code, err, len(got), len(image), out)
	}
	select {
	case action := <-power:
		if action != rocelink.PowerReboot {
			t.Errorf("power: %s", action)
		}
	default:
		t.Error("the board was not restarted")
	}
	for _, c := range []struct {
		text string
		args []string
	}{
		{"reboot or off", []string{"power", "b", "dance"}},
		{"no such file", []string{"update", "b", filepath.Join(dir, "none")}},
		{"--sign", []string{"update", "b", file + ".sig"}},
	} {
		if _, code, err := run(ctx, append([]string{"--nats", s.URL()}, c.args...)...); code == 0 || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %d, %v", c.args, code, err)
		}
	}
}
