package roce

// Packet is one transport packet: what a UDP datagram to [Port] carries, from
// the base transport header to the invariant CRC. RETH, AETH and Imm mean
// something only if the opcode has them.
type Packet struct {
	BTH
	RETH RETH
	AETH AETH
	Imm  uint32 // host order of the big-endian value on the wire
	// Payload is without pad. After Decode it aliases the bytes decoded.
	Payload []byte
}

// MinPacket is the length of the shortest packet: BTH and ICRC.
const MinPacket = BTHLen + ICRCLen

// MaxPacket is the length of the longest: RETH, immediate data and a payload of
// the largest path MTU. It is a SEND or WRITE; READ responses are shorter.
const MaxPacket = BTHLen + RETHLen + ImmLen + int(MaxMTU) + ICRCLen

// Decode reads a UDP payload and checks its structure: not the ICRC, which
// needs the addresses (see [Flow.Check]), and not the path MTU, which only the
// responder knows.
//
// On an error p holds what could be read, the BTH at least when there were 12
// bytes, so that a responder can answer; everything else is zero. ErrPad and
// ErrLength are what a responder answers with "invalid request".
func (p *Packet) Decode(udp []byte) error {
	*p = Packet{}
	if len(udp) < BTHLen {
		return ErrShort
	}
	p.BTH.decode(udp)
	if p.Version != 0 {
		return ErrVersion
	}
	op := p.Opcode
	if !op.Known() {
		return ErrOpcode
	}
	n := op.HeaderLen()
	if len(udp) < n+ICRCLen {
		return ErrShort
	}
	at := BTHLen
	if op.HasRETH() {
		p.RETH.decode(udp[at:])
		at += RETHLen
	}
	if op.HasAETH() {
		p.AETH.decode(udp[at:])
		at += AETHLen
	}
	if op.HasImm() {
		p.Imm = decodeImm(udp[at:])
	}
	padded := len(udp) - ICRCLen - n
	if padded&3 != 0 {
		return ErrLength
	}
	if int(p.PadCount) > padded {
		return ErrPad
	}
	payload := padded - int(p.PadCount)
	if err := op.allows(payload); err != nil {
		return err
	}
	p.Payload = udp[n : n+payload : n+payload]
	return nil
}

// allows checks a payload length against what holds for every path MTU (IBTA
// chapter 9): none in READ_REQUEST and ACKNOWLEDGE, whole words in FIRST and
// MIDDLE, at least a byte in all but ONLY, never more than the largest MTU.
func (o Opcode) allows(payload int) error {
	f := opFlags[o]
	switch {
	case payload > int(MaxMTU):
		return ErrLength
	case f&opNoPayload != 0 && payload != 0:
		return ErrLength
	case f&(opFirst|opMiddle) != 0 && payload&3 != 0:
		return ErrPad
	case f&(opFirst|opMiddle|opLast) != 0 && payload == 0:
		return ErrLength
	}
	return nil
}

// HeaderLen returns the bytes before the payload.
func (p *Packet) HeaderLen() int { return p.Opcode.HeaderLen() }

// Len returns the bytes that Put needs: headers, payload, pad and ICRC.
func (p *Packet) Len() int { return p.HeaderLen() + (len(p.Payload)+3)&^3 + ICRCLen }

// Put writes headers, payload and pad to dst and returns the length of the
// packet, which includes four bytes for the ICRC that it leaves untouched:
// [Flow.Seal] fills them in. The pad count follows from the payload, whatever
// p.PadCount says. A payload that is in its place in dst already (see
// HeaderLen) is not copied. On an error dst is unchanged.
func (p *Packet) Put(dst []byte) (int, error) {
	op := p.Opcode
	if !op.Known() {
		return 0, ErrOpcode
	}
	if p.Version != 0 {
		return 0, ErrVersion
	}
	if err := op.allows(len(p.Payload)); err != nil {
		return 0, err
	}
	pad := -len(p.Payload) & 3
	n := op.HeaderLen()
	total := n + len(p.Payload) + pad + ICRCLen
	if len(dst) < total {
		return 0, ErrRoom
	}
	// The payload first: it may overlap what the headers will overwrite.
	if len(p.Payload) > 0 && &p.Payload[0] != &dst[n] {
		copy(dst[n:], p.Payload)
	}
	clear(dst[total-ICRCLen-pad : total-ICRCLen])
	p.BTH.put(dst, pad)
	at := BTHLen
	if op.HasRETH() {
		p.RETH.put(dst[at:])
		at += RETHLen
	}
	if op.HasAETH() {
		p.AETH.put(dst[at:])
		at += AETHLen
	}
	if op.HasImm() {
		putImm(dst[at:], p.Imm)
	}
	return total, nil
}
