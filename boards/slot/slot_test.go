package slot

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestState(t *testing.T) {
	for _, s := range []State{{Slot: A}, {Slot: B, Serial: 7}, {Slot: A, Trial: B, Serial: 1<<32 - 1}, {Slot: B, Trial: A, Serial: 1}} {
		data := s.Encode()
		if got, err := DecodeState(data); err != nil || got != s || len(data) != FileBytes {
			t.Errorf("%+v: %+v, %v, %d bytes", s, got, err, len(data))
		}
	}
	for _, s := range []Tries{{}, {Serial: 9, Count: 3}} {
		// U-Boot fills its file up with zeros.
		data := bytes.TrimRight(s.Encode(), "\n")
		data = append(append(data, '\n'), make([]byte, FileBytes-len(data)-1)...)
		if got, err := DecodeTries(data); err != nil || got != s {
			t.Errorf("%+v: %+v, %v", s, got, err)
		}
	}
}

// A file torn at any byte is the old state, the new one, or none.
func TestTorn(t *testing.T) {
	for _, c := range [][2]State{
		{{Slot: A}, {Slot: A, Trial: B, Serial: 1}},
		{{Slot: A, Trial: B, Serial: 9}, {Slot: B, Serial: 9}},
		{{Slot: B, Serial: 9}, {Slot: B, Trial: A, Serial: 10}},
		{{Slot: B, Trial: A, Serial: 19}, {Slot: B, Serial: 19}},
	} {
		before, after := c[0].Encode(), c[1].Encode()
		for n := range FileBytes {
			torn := append(append([]byte(nil), after[:n]...), before[n:]...)
			s, err := DecodeState(torn)
			if err == nil && s != c[0] && s != c[1] || err != nil && !errors.Is(err, ErrState) {
				t.Errorf("%+v to %+v at %d: %+v, %v", c[0], c[1], n, s, err)
			}
		}
	}
}

func TestOrder(t *testing.T) {
	bad := []byte("rl_slot=a\nrl_trial=b\n")
	trial := State{Slot: A, Trial: B, Serial: 5}.Encode()
	for _, c := range []struct {
		name               string
		state, copy, tries []byte
		want               []string
		count              uint32 // 0: none is written
	}{
		{"nothing", nil, nil, nil, []string{A, B}, 0},
		{"torn", bad, State{Slot: B}.Encode(), nil, []string{B, A}, 0},
		{"no trial", State{Slot: B}.Encode(), trial, nil, []string{B, A}, 0},
		{"first try", trial, nil, Tries{Serial: 5}.Encode(), []string{B, A, B}, 1},
		{"last try", trial, nil, Tries{5, Limit - 1}.Encode(), []string{B, A, B}, Limit},
		{"given up", trial, nil, Tries{5, Limit}.Encode(), []string{A, B}, 0},
		{"tries of another", trial, nil, Tries{4, 0}.Encode(), []string{A, B}, 0},
		{"torn tries", trial, nil, bad, []string{A, B}, 0},
	} {
		got, counted := Order(c.state, c.copy, c.tries)
		var count uint32
		if counted != nil {
			n, err := DecodeTries(counted)
			if err != nil {
				t.Error(err)
			}
			count = n.Count
		}
		if !reflect.DeepEqual(got, c.want) || count != c.count {
			t.Errorf("%s: %v and %d, want %v and %d", c.name, got, count, c.want, c.count)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(State{Slot: A, Trial: B, Serial: 3}.Encode())
	f.Add(Tries{3, 1}.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := DecodeState(data); err == nil {
			if again, err := DecodeState(s.Encode()); err != nil || again != s {
				t.Errorf("%+v, %v", again, err)
			}
		}
		if s, err := DecodeTries(data); err == nil {
			if again, err := DecodeTries(s.Encode()); err != nil || again != s {
				t.Errorf("%+v, %v", again, err)
			}
		}
	})
}

// Whatever a file holds, reading it ends without a panic.
func FuzzCheckImage(f *testing.F) {
	f.Add([]byte{0xd0, 0x0d, 0xfe, 0xed, 0, 0, 0, 56, 0, 0, 0, 40, 0, 0, 0, 56, 0, 0, 0, 40, 0, 0, 0, 17, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16,
		0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := CheckImage(bytes.NewReader(data), int64(len(data)), "m"); err != nil && !errors.Is(err, ErrImage) && !errors.Is(err, ErrBoard) {
			// Reading failed: an offset beyond the end must be found before.
			t.Errorf("%v", err)
		}
	})
}
