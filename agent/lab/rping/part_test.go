package rping

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// side is a Connection to another side of this process. Its memory is at the
// address that is its index.
type side struct {
	t         *testing.T
	in, out   chan []byte
	memory    []byte // of the peer
	rkey      uint32
	read      []byte
	spoil     func(text []byte) // of a WRITE
	spoilRead func(text []byte)
}

func (s *side) Send(m []byte) error { s.out <- append([]byte(nil), m...); return nil }

func (s *side) Receive() ([]byte, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-time.After(10 * time.Second):
		return nil, errors.New("nothing came")
	}
}

func (s *side) at(b Buffer) []byte {
	if b.RKey != s.rkey {
		s.t.Errorf("rkey %#x, want %#x", b.RKey, s.rkey)
	}
	return s.memory[b.Address:][:b.Size]
}

func (s *side) Read(b Buffer) ([]byte, error) {
	s.read = append(s.read[:0], s.at(b)...)
	if s.spoilRead != nil {
		s.spoilRead(s.read)
	}
	return s.read, nil
}

func (s *side) Write(b Buffer, text []byte) error {
	copy(s.at(b), text)
	if s.spoil != nil {
		s.spoil(s.at(b))
	}
	return nil
}

// run has a client ping a server; hurt may change the server's side.
func run(t *testing.T, size, count int, hurt func(*side)) (pings int, client, server error) {
	t.Helper()
	const rkey = 0x1234
	memory := make([]byte, 2*size)
	a, b := make(chan []byte, 4), make(chan []byte, 4)
	c, s := &side{t: t, in: a, out: b}, &side{t: t, in: b, out: a, memory: memory, rkey: rkey}
	if hurt != nil {
		hurt(s)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pings, server = Server(s)
		close(a)
	}()
	half := func(at int) Memory {
		return Memory{Buffer{uint64(at), rkey, uint32(size)}, memory[at:][:size]}
	}
	client = Client(c, half(0), half(size), count)
	close(b)
	<-ended
	return pings, client, server
}

func TestClientAndServerAgree(t *testing.T) {
	for _, size := range []int{MinText, 64, 4097, MaxText} {
		const count = 130 // the first character comes around twice
		pings, client, server := run(t, size, count, nil)
		if err := errors.Join(client, server); err != nil || pings != count {
			t.Errorf("%d bytes: %d pings answered of %d: %v", size, pings, count, err)
		}
	}
}

func TestEachSideFindsAWrongByte(t *testing.T) {
	flip := func(text []byte) { text[len(text)/2] ^= 1 }
	if _, client, _ := run(t, 64, 3, func(s *side) { s.spoil = flip }); !errors.Is(client, ErrText) || !strings.Contains(client.Error(), "byte 32 of 64") {
		t.Errorf("a WRITE with a wrong byte: %v", client)
	}
	if _, client, server := run(t, 64, 3, func(s *side) { s.spoilRead = flip }); !errors.Is(server, ErrText) || !errors.Is(client, io.ErrUnexpectedEOF) {
		t.Errorf("a READ with a wrong byte: server %v, client %v", server, client)
	}
}

func TestServerRefusesWhatIsNoPing(t *testing.T) {
	for what, messages := range map[string][][]byte{
		"short":           {make([]byte, 15)},
		"text too short":  {Buffer{Size: MinText - 1}.Append(nil)},
		"text too long":   {Buffer{Size: MaxText + 1}.Append(nil)},
		"sink too small":  {Buffer{Size: 64}.Append(nil), Buffer{Size: 63}.Append(nil)},
		"sink is no sink": {Buffer{Size: 64}.Append(nil), nil},
	} {
		in := make(chan []byte, 4)
		s := &side{t: t, in: in, out: make(chan []byte, 4), memory: make([]byte, 64)}
		Text(s.memory, 0)
		for _, m := range messages {
			in <- m
		}
		close(in)
		if pings, err := Server(s); !errors.Is(err, ErrProtocol) || pings != 0 {
			t.Errorf("%s: %d pings, %v", what, pings, err)
		}
	}
}

func TestHangingUpInAPingIsAnError(t *testing.T) {
	in := make(chan []byte, 1)
	s := &side{t: t, in: in, out: make(chan []byte, 4), memory: make([]byte, 64)}
	Text(s.memory, 0)
	in <- Buffer{Size: 64}.Append(nil)
	close(in)
	if _, err := Server(s); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
