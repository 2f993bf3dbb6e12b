package soft

import "sync/atomic"

// counter is one of the device's counters. The names are in the style of the
// hw_counters that rxe and mlx5 show in sysfs.
type counter int

const (
	rxPackets counter = iota
	rxBytes
	txPackets
	txBytes
	rxICRCError
	rxMalformed
	rxUnknownQP
	rxQPNotReady
	rxWrongAddress
	rxPKeyMismatch
	rxUnexpectedResponse
	duplicateRequest
	outOfSequence
	droppedAfterNak
	rnrNakSent
	sequenceNakSent
	remoteAccessError
	invalidRequest
	remoteOperationalError
	localLengthError
	cqOverrun
	readRequests
	readBytes
	writeRequests
	writeBytes
	sendMessages
	sendBytes
	receivesFlushed
	acksSent
	socketDropped // the socket's
	rxTooLong     // the socket's
	txDropped
	rounds
	counters
)

var counterNames = [counters]string{
	rxPackets:              "rx_packets",
	rxBytes:                "rx_bytes",
	txPackets:              "tx_packets",
	txBytes:                "tx_bytes",
	rxICRCError:            "rx_icrc_error",
	rxMalformed:            "rx_malformed",
	rxUnknownQP:            "rx_unknown_qp",
	rxQPNotReady:           "rx_qp_not_ready",
	rxWrongAddress:         "rx_wrong_address",
	rxPKeyMismatch:         "rx_pkey_mismatch",
	rxUnexpectedResponse:   "rx_unexpected_response",
	duplicateRequest:       "duplicate_request",
	outOfSequence:          "out_of_sequence",
	droppedAfterNak:        "dropped_after_nak",
	rnrNakSent:             "rnr_nak_sent",
	sequenceNakSent:        "sequence_nak_sent",
	remoteAccessError:      "remote_access_error",
	invalidRequest:         "invalid_request",
	remoteOperationalError: "remote_operational_error",
	localLengthError:       "local_length_error",
	cqOverrun:              "cq_overrun",
	readRequests:           "read_requests",
	readBytes:              "read_bytes",
	writeRequests:          "write_requests",
	writeBytes:             "write_bytes",
	sendMessages:           "send_messages",
	sendBytes:              "send_bytes",
	receivesFlushed:        "receives_flushed",
	acksSent:               "acks_sent",
	socketDropped:          "socket_dropped",
	rxTooLong:              "rx_too_long",
	txDropped:              "tx_dropped",
	rounds:                 "rounds",
}

// tally counts without atomics in the responder; publish makes the counts
// visible to others, once a round.
type tally struct {
	own    [counters]uint64
	shared [counters]atomic.Uint64
}

func (t *tally) add(c counter, n int) { t.own[c] += uint64(n) }

func (t *tally) publish() {
	for i := range t.own {
		if v := t.own[i]; v != t.shared[i].Load() {
			t.shared[i].Store(v)
		}
	}
}

// read returns the counts as of the last round.
func (t *tally) read() map[string]uint64 {
	m := make(map[string]uint64, counters)
	for i, name := range counterNames {
		m[name] = t.shared[i].Load()
	}
	return m
}
