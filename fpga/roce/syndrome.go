package roce

import (
	"fmt"
	"time"
)

// Syndrome says what an acknowledge means: ACK with a credit count, "receiver
// not ready" with a timer code, or NAK with a reason (IBTA, "AETH Syndrome Field").
type Syndrome uint8

// The kinds of syndrome, bits 7 to 5. Bit 7 is reserved and sent as 0; with it
// set a syndrome is none of the three.
const (
	syndromeKind = 0xe0
	syndromeACK  = 0x00
	syndromeRNR  = 0x20
	syndromeNAK  = 0x60
	syndromeCode = 0x1f
)

// CreditsInvalid is the credit count that says "end-to-end flow control is not
// used" (IBTA, "End-to-End Credits").
const CreditsInvalid = 31

// NakCode is the reason of a NAK (IBTA, "NAK Codes").
type NakCode uint8

// The reasons of a NAK.
const (
	PSNSequenceError  NakCode = 0
	InvalidRequest    NakCode = 1
	RemoteAccess      NakCode = 2
	RemoteOperational NakCode = 3
)

// String returns the reason in words.
func (c NakCode) String() string {
	switch c {
	case PSNSequenceError:
		return "PSN sequence error"
	case InvalidRequest:
		return "invalid request"
	case RemoteAccess:
		return "remote access error"
	case RemoteOperational:
		return "remote operational error"
	}
	return fmt.Sprintf("NAK code %d", uint8(c))
}

// ACK returns the syndrome of a positive acknowledge with a 5-bit credit count.
func ACK(credits uint8) Syndrome { return syndromeACK | Syndrome(credits&syndromeCode) }

// RNRNak returns the syndrome "receiver not ready" with a 5-bit timer code, for
// which see [RNRDelay].
func RNRNak(timer uint8) Syndrome { return syndromeRNR | Syndrome(timer&syndromeCode) }

// Nak returns the syndrome of a negative acknowledge.
func Nak(code NakCode) Syndrome { return syndromeNAK | Syndrome(code)&syndromeCode }

// IsACK reports a positive acknowledge.
func (s Syndrome) IsACK() bool { return s&syndromeKind == syndromeACK }

// IsRNR reports "receiver not ready".
func (s Syndrome) IsRNR() bool { return s&syndromeKind == syndromeRNR }

// IsNAK reports a negative acknowledge other than "receiver not ready".
func (s Syndrome) IsNAK() bool { return s&syndromeKind == syndromeNAK }

// Credits returns the credit count of an ACK, [CreditsInvalid] if there is none.
func (s Syndrome) Credits() uint8 {
	if !s.IsACK() {
		return CreditsInvalid
	}
	return uint8(s & syndromeCode)
}

// RNRTimer returns the timer code of "receiver not ready".
func (s Syndrome) RNRTimer() uint8 { return uint8(s & syndromeCode) }

// NakCode returns the reason of a NAK.
func (s Syndrome) NakCode() NakCode { return NakCode(s & syndromeCode) }

// String returns the syndrome in words.
func (s Syndrome) String() string {
	switch {
	case s.IsACK() && s.Credits() == CreditsInvalid:
		return "ACK"
	case s.IsACK():
		return fmt.Sprintf("ACK, credit code %d", s.Credits())
	case s.IsRNR():
		return fmt.Sprintf("RNR, wait %v", RNRDelay(s.RNRTimer()))
	case s.IsNAK():
		return "NAK, " + s.NakCode().String()
	}
	return fmt.Sprintf("syndrome 0x%02x", uint8(s))
}

// rnrDelays are in units of 10 µs (IBTA, "Encoding for RNR NAK Timer Field").
var rnrDelays = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
	16384, 24576, 32768, 49152,
}

// RNRDelay returns how long a requester waits after "receiver not ready" with a
// 5-bit timer code. Code 0 is the longest, 655.36 ms.
func RNRDelay(code uint8) time.Duration {
	return time.Duration(rnrDelays[code&syndromeCode]) * 10 * time.Microsecond
}
