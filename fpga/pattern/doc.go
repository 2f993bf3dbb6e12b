// Package pattern defines the frames that the traffic generator makes, once for
// the fabric, for its READ checker and for the host's verifier: each can make
// or check any part of any frame from its kind and sequence number alone.
//
// # Counter
//
// Little-endian 64-bit words. Word i of the frame with sequence number seq is
// (seq mod 2^32)<<32 | i. The last word is cut where the frame ends.
//
// # PRBS31
//
// The sequence of the polynomial x^31 + x^28 + 1 of ITU-T O.150, not inverted:
// s[n] = s[n-28] ^ s[n-31]. Bit s[n] is bit n mod 8, counted from the least
// significant, of byte n/8; in a little-endian bus word it is simply bit n.
// Every frame starts anew: the 31 bits before the first, s[-1] to s[-31], are
// bits 30 to 0 of [Seed], which is never zero and costs no logic but wires and
// inverters. In hardware a whole bus word is made at a time from
// s[n] = s[n-28·2^k] ^ s[n-31·2^k], which holds for every k because squaring is
// linear over GF(2); the code here uses k = 6, that is whole 64-bit words.
//
// # Trailer
//
// A frame may end in a CRC-32 (IEEE 802.3, as hash/crc32) over all bytes before
// it, little-endian in the last four bytes. It takes the place of the pattern
// there: check b[:len(b)-CRCLen].
//
// Nothing here allocates.
package pattern
