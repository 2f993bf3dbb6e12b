package model

import "rocelink/fpga/roce"

// kind says what a message is to its stream.
type kind uint8

const (
	kindFrame   kind = iota // a frame that the peer gets
	kindTrailer             // what follows a frame of verb Write
	kindRead                // a frame that the peer is asked for
	kindCredit              // a READ of the Credit word
)

func (k kind) isRead() bool { return k >= kindRead }

// message is a message on its way into the ring.
type message struct {
	active     bool
	kind       kind
	op         roce.Opcode // as a single packet
	solicited  bool
	sequence   uint64 // of the frame
	length     uint32
	offset     uint32 // how far it is
	frameBytes uint32 // of the frame that is done with this message
	address    uint64
	rkey       uint32
	imm        uint32
	sum        uint32 // CRC of the frame so far
}
