package lab

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"rocelink/fpga/roce"
)

// ErrExchange means that a foreign program said something else than its part of
// an exchange.
var ErrExchange = errors.New("unexpected message")

// Endpoint is what two programs tell each other of a queue pair.
type Endpoint struct {
	QPN     roce.QPN
	PSN     roce.PSN // first that it sends
	IP      netip.Addr
	RKey    uint32
	Address uint64
}

// Exchange is one side of a conversation that two programs have over TCP: in
// each step both say as much, the client first.
type Exchange struct {
	Conn   io.ReadWriter
	Server bool
}

// swap says mine and returns what the other said, as long as mine.
func (x *Exchange) swap(what string, mine []byte) ([]byte, error) {
	theirs := make([]byte, len(mine))
	steps := []func() error{
		func() error { _, err := x.Conn.Write(mine); return err },
		func() error { _, err := io.ReadFull(x.Conn, theirs); return err },
	}
	if x.Server {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("exchange %s: %w", what, err)
		}
	}
	return theirs, nil
}

// Pingpong is the exchange of ibv_rc_pingpong (rdma-core 44): one message each
// way, and "done" from the client. ready is called when the other's endpoint is
// known and must leave ours ready.
func (x *Exchange) Pingpong(ours Endpoint, ready func(theirs Endpoint) error) error {
	const layout = "%04x:%06x:%06x:%s\x00" // LID, QPN, PSN, GID; as a C string
	gid := ours.IP.As16()
	mine := fmt.Appendf(nil, layout, 0, uint32(ours.QPN), uint32(ours.PSN), hex.EncodeToString(gid[:]))
	theirs := make([]byte, len(mine))
	if !x.Server {
		if _, err := x.Conn.Write(mine); err != nil {
			return fmt.Errorf("pingpong: %w", err)
		}
	}
	if _, err := io.ReadFull(x.Conn, theirs); err != nil {
		return fmt.Errorf("pingpong: %w", err)
	}
	e, err := parsePingpong(theirs)
	if err != nil {
		return err
	}
	if err := ready(e); err != nil {
		return err
	}
	done := []byte("done\x00")
	if !x.Server {
		_, err = x.Conn.Write(done)
	} else if _, err = x.Conn.Write(mine); err == nil {
		_, err = io.ReadFull(x.Conn, make([]byte, len(done)))
	}
	if err != nil {
		return fmt.Errorf("pingpong: %w", err)
	}
	return nil
}

func parsePingpong(b []byte) (e Endpoint, err error) {
	f, err := hexFields(b, 4)
	if err != nil {
		return e, fmt.Errorf("pingpong: %w", err)
	}
	gid, err := hex.DecodeString(f[3])
	if err != nil || len(gid) != 16 {
		return e, fmt.Errorf("pingpong: %w: GID %q", ErrExchange, f[3])
	}
	q, err1 := strconv.ParseUint(f[1], 16, 24)
	p, err2 := strconv.ParseUint(f[2], 16, 24)
	if err := errors.Join(err1, err2); err != nil {
		return e, fmt.Errorf("pingpong: %w: %w", ErrExchange, err)
	}
	e.QPN, e.PSN, e.IP = roce.QPN(q), roce.PSN(p), netip.AddrFrom16([16]byte(gid)).Unmap()
	return e, nil
}

// hexFields splits a C string at its colons.
func hexFields(b []byte, least int) ([]string, error) {
	text, _, ok := bytes.Cut(b, []byte{0})
	f := strings.Split(string(text), ":")
	if !ok || len(f) < least {
		return nil, fmt.Errorf("%w: %q", ErrExchange, b)
	}
	return f, nil
}

// Perftest is the exchange of ib_send_bw, ib_write_bw and ib_read_bw (perftest
// 4.5, versions 5.70 and later on the wire).
type Perftest struct {
	Exchange
	mine []byte
}

const (
	perftestVersion = "6.10"
	// perftestVersionBytes is MAX_VERSION of perftest.
	perftestVersionBytes = 16
	// Both sides use the larger of their cycle buffers and cache lines.
	perftestCycle, perftestLine = 4096, 64
)

// Open swaps versions, sizes, path MTUs and endpoints, and returns the other's
// endpoint and the smaller path MTU.
func (x *Perftest) Open(ours Endpoint, mtu roce.MTU) (theirs Endpoint, agreed roce.MTU, err error) {
	version := make([]byte, perftestVersionBytes)
	copy(version, perftestVersion)
	if _, err := x.swap("versions", version); err != nil {
		return theirs, 0, err
	}
	for _, n := range []uint32{perftestCycle, perftestLine} {
		if _, err := x.swap("sizes", binary.BigEndian.AppendUint32(nil, n)); err != nil {
			return theirs, 0, err
		}
	}
	b, err := x.swap("path MTUs", []byte{'0' + mtu.Code(), 0})
	if err != nil {
		return theirs, 0, err
	}
	other, err := roce.MTUFromCode(b[0] - '0')
	if err != nil {
		return theirs, 0, fmt.Errorf("exchange path MTUs: %w: %q", ErrExchange, b)
	}
	x.mine = ours.perftest()
	theirs, err = x.endpoints()
	return theirs, min(mtu, other), err
}

// Steps swaps endpoints again n times: the programs keep in step that way.
func (x *Perftest) Steps(n int) error {
	for range n {
		if _, err := x.endpoints(); err != nil {
			return err
		}
	}
	return nil
}

// Reports swaps what each side has measured; ours is nothing.
func (x *Perftest) Reports() error {
	for range 5 { // size, iterations, peak, average, message rate
		if _, err := x.swap("reports", make([]byte, 8)); err != nil {
			return err
		}
	}
	return nil
}

// Close says that we are done. The other says so too, or has gone already.
func (x *Perftest) Close() error {
	if err := x.Steps(1); err != nil {
		return err
	}
	if _, err := x.Conn.Write([]byte("done\x00")); err != nil {
		return fmt.Errorf("exchange the end: %w", err)
	}
	return nil
}

func (x *Perftest) endpoints() (Endpoint, error) {
	b, err := x.swap("endpoints", x.mine)
	if err != nil {
		return Endpoint{}, err
	}
	return parsePerftest(b)
}

// perftest is the endpoint as perftest writes it: LID, outstanding READs, QPN,
// PSN, rkey, address, the GID byte by byte, SRQ number.
func (e Endpoint) perftest() []byte {
	b := fmt.Appendf(nil, "%04x:%04x:%06x:%06x:%08x:%016x:", 0, 16, uint32(e.QPN), uint32(e.PSN), e.RKey, e.Address)
	for _, g := range e.IP.As16() {
		b = fmt.Appendf(b, "%02x:", g)
	}
	return append(fmt.Appendf(b, "%08x:", 0), 0)
}

func parsePerftest(b []byte) (e Endpoint, err error) {
	const gidAt, gidEnd = 6, 22
	f, err := hexFields(b, gidEnd+1)
	if err != nil {
		return e, fmt.Errorf("exchange endpoints: %w", err)
	}
	var v [6]uint64
	for i, bits := range []int{16, 16, 24, 24, 32, 64} {
		if v[i], err = strconv.ParseUint(f[i], 16, bits); err != nil {
			return e, fmt.Errorf("exchange endpoints: %w: %w", ErrExchange, err)
		}
	}
	gid, err := hex.DecodeString(strings.Join(f[gidAt:gidEnd], ""))
	if err != nil || len(gid) != 16 {
		return e, fmt.Errorf("exchange endpoints: %w: GID in %q", ErrExchange, b)
	}
	return Endpoint{QPN: roce.QPN(v[2]), PSN: roce.PSN(v[3]), RKey: uint32(v[4]), Address: v[5],
		IP: netip.AddrFrom16([16]byte(gid)).Unmap()}, nil
}
