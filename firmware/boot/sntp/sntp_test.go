package sntp

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// put writes a time as the wire has it.
func put(b []byte, t time.Time) {
	binary.BigEndian.PutUint32(b, uint32(t.Unix()-epoch1900))
	binary.BigEndian.PutUint32(b[4:], uint32(uint64(t.Nanosecond())<<32/1e9))
}

// server answers each request as the function says.
func server(t *testing.T, answer func(request, reply []byte) []byte) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1024)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			reply := make([]byte, size)
			reply[offFirst] = version<<3 | modeServer
			reply[offStratum] = 2
			copy(reply[offOrigin:], buf[offTransmit:offTransmit+8])
			if reply = answer(buf[:n], reply); reply != nil {
				_, _ = c.WriteTo(reply, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

func TestQuery(t *testing.T) {
	for _, behind := range []time.Duration{0, time.Hour, -time.Hour, 20 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour} {
		address := server(t, func(q, r []byte) []byte {
			if len(q) != size || q[0] != 0x23 {
				t.Errorf("request % x", q)
			}
			now := time.Now().Add(behind)
			put(r[offReceive:], now)
			put(r[offTransmit:], now)
			return r
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		got, err := Query(ctx, address)
		cancel()
		if err != nil || (got-behind).Abs() > 5*time.Second {
			t.Errorf("%v: %v, %v", behind, got, err)
		}
	}
}

func TestBehind(t *testing.T) {
	// Sent at 100, received at 210, answered at 220, back at 140: the path took
	// 15 each way, the clock is behind by 95.
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	if got := (answer{at(210), at(220)}).behind(at(100), 40*time.Second); got != 95*time.Second {
		t.Errorf("%v", got)
	}
}

func TestUnusableAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(r []byte)
		says  string
	}{
		{"not synchronised", func(r []byte) { r[0] |= 0xC0 }, "synchronised"},
		{"kiss of death", func(r []byte) { r[1] = 0; copy(r[12:], "RATE") }, "RATE"},
		{"stratum 16", func(r []byte) { r[1] = 16 }, "stratum"},
		{"no time", func(r []byte) { clear(r[offReceive:]) }, "no time"},
	} {
		address := server(t, func(_, r []byte) []byte {
			put(r[offReceive:], time.Now())
			put(r[offTransmit:], time.Now())
			c.spoil(r)
			return r
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := Query(ctx, address)
		cancel()
		if !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What answers no question of ours is passed over; silence has an end.
func TestForeignAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(r []byte) []byte
	}{
		{"another nonce", func(r []byte) []byte { r[offOrigin]++; return r }},
		{"a client's", func(r []byte) []byte { r[0] = 0x23; return r }},
		{"short", func(r []byte) []byte { return r[:size-1] }},
		{"none", func([]byte) []byte { return nil }},
	} {
		address := server(t, func(_, r []byte) []byte { return c.spoil(r) })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := Query(ctx, address)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestEras(t *testing.T) {
	for v, want := range map[uint64]string{
		0xE0000000_80000000: "2019-02-02T11:39:44.5Z",
		0xFFFFFFFF_00000000: "2036-02-07T06:28:15Z",
		0x00000001_00000000: "2036-02-07T06:28:17Z",
		0x80000000_00000000: "1968-01-20T03:14:08Z",
	} {
		if got := timestamp(v).UTC().Format(time.RFC3339Nano); got != want {
			t.Errorf("%#x: %s, want %s", v, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	good := request(7)
	good[0], good[1] = 0x24, 1
	binary.BigEndian.PutUint64(good[offOrigin:], 7)
	put(good[offReceive:], time.Unix(1.7e9, 0))
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parse(b, 7)
		if err == nil && (a.received.Year() < 1968 || a.sent.Year() > 2104) {
			t.Errorf("%v", a)
		}
	})
}
