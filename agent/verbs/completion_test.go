package verbs

import (
	"strings"
	"testing"
)

// The numbers are those of enum ibv_wc_status, ibv_wc_opcode and ibv_qp_state in
// <infiniband/verbs.h>: a provider over the library converts nothing.
func TestStatusesAreThoseOfTheLibrary(t *testing.T) {
	for s, want := range map[Status]uint8{
		Success: 0, LocalLengthError: 1, LocalQPOperationError: 2, LocalEECOperationError: 3,
		LocalProtectionError: 4, WorkRequestFlushed: 5, MemoryWindowBindError: 6, BadResponse: 7,
		LocalAccessError: 8, RemoteInvalidRequest: 9, RemoteAccessError: 10, RemoteOperationError: 11,
		RetryExceeded: 12, RNRRetryExceeded: 13, LocalRDDViolation: 14, RemoteInvalidRDRequest: 15,
		RemoteAborted: 16, InvalidEECN: 17, InvalidEECState: 18, FatalError: 19, ResponseTimeout: 20,
		GeneralError: 21, TagMatchingError: 22, TagMatchingIncomplete: 23,
	} {
		if uint8(s) != want {
			t.Errorf("%v is %d, want %d", s, uint8(s), want)
		}
	}
	if Statuses != 24 {
		t.Errorf("%d statuses, want 24", Statuses)
	}
}

func TestStatusText(t *testing.T) {
	seen := map[string]Status{}
	for s := Status(0); int(s) < Statuses; s++ {
		name := s.String()
		if name == "" || name != strings.TrimSpace(name) {
			t.Errorf("status %d: name %q", s, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("statuses %d and %d are both %q", other, s, name)
		}
		seen[name] = s
	}
	for _, s := range []Status{LocalLengthError, LocalProtectionError, WorkRequestFlushed, LocalAccessError,
		RemoteAccessError, RetryExceeded, RNRRetryExceeded} {
		if s.Remedy() == "" {
			t.Errorf("%v: no remedy", s)
		}
	}
	if got := Success.Remedy(); got != "" {
		t.Errorf("remedy of success: %q", got)
	}
	for _, s := range []Status{Status(Statuses), 255} {
		if !strings.HasPrefix(s.String(), "status ") || s.Remedy() != "" {
			t.Errorf("unknown status %d: %q, %q", uint8(s), s.String(), s.Remedy())
		}
	}
}

func TestOpcodes(t *testing.T) {
	for o, want := range map[Opcode]string{
		0: "SEND", 1: "RDMA_WRITE", 2: "RDMA_READ", 128: "RECV", 129: "RECV_RDMA_WITH_IMM", 77: "opcode 77",
	} {
		if got := o.String(); got != want {
			t.Errorf("opcode %d is %q, want %q", uint8(o), got, want)
		}
	}
}

func TestStates(t *testing.T) {
	for i, want := range []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "?", "?"} {
		if got := State(i).String(); got != want {
			t.Errorf("state %d is %q, want %q", i, got, want)
		}
	}
	if got := State(255).String(); got != "?" {
		t.Errorf("state 255 is %q", got)
	}
}
