package board

import (
	"encoding/json"
	"errors"
	"slices"

	"rocelink"
	"rocelink/firmware/stream"
	"rocelink/fpga/regs"
)

// endpoints answers each endpoint of the micro service.
var endpoints = map[string]func(*Board, []byte) (any, error){
	rocelink.EndpointOpen:  (*Board).open,
	rocelink.EndpointStart: session((*stream.Manager).Start),
	rocelink.EndpointStop:  session((*stream.Manager).Stop),
	rocelink.EndpointRenew: session((*stream.Manager).Renew),
	rocelink.EndpointClose: session((*stream.Manager).Close),
	rocelink.EndpointStatus: func(b *Board, data []byte) (any, error) {
		// An empty request is allowed; what is there must be right.
		if len(data) > 0 {
			var r struct{}
			if err := decode(data, &r); err != nil {
				return nil, err
			}
		}
		return b.sampleStatus(), nil
	},
	rocelink.EndpointReset:         (*Board).reset,
	rocelink.EndpointReadRegister:  (*Board).readRegister,
	rocelink.EndpointModule:        (*Board).module,
	rocelink.EndpointWriteRegister: (*Board).writeRegister,
}

// Handle answers a request to an endpoint. An error is a *rocelink.Error.
func (b *Board) Handle(endpoint string, data []byte) ([]byte, error) {
	answer, ok := endpoints[endpoint]
	if !ok {
		return nil, rocelink.Refuse(rocelink.CodeUnsupported, "endpoint %.40q: unknown", endpoint)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, rocelink.Refuse(rocelink.CodeNoFabric, "%s: boardd stops", endpoint)
	}
	var reply any
	err := b.withheld(endpoint)
	if err == nil {
		reply, err = answer(b, data)
	}
	if b.hw != nil {
		b.checkFault()
	}
	if err != nil {
		b.log.Info("refused", "endpoint", endpoint, "err", err)
		var e *rocelink.Error
		if !errors.As(err, &e) {
			e = rocelink.Refuse(rocelink.CodeFailed, "%s: %v", endpoint, err)
		}
		return nil, e
	}
	out, err := json.Marshal(reply)
	if err != nil {
		return nil, rocelink.Refuse(rocelink.CodeFailed, "%s: encode the reply: %v", endpoint, err)
	}
	return out, nil
}

// decode reads a request; whatever is wrong with it is the sender's doing.
func decode(data []byte, v any) error {
	if err := rocelink.Decode(data, v); err != nil {
		return rocelink.Refuse(rocelink.CodeBadRequest, "%v", err)
	}
	return nil
}

func (b *Board) open(data []byte) (any, error) {
	var r rocelink.OpenRequest
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	return wrap(b.streams.Open(r))
}

func session(do func(*stream.Manager, rocelink.SessionRequest) (rocelink.StreamStatus, error)) func(*Board, []byte) (any, error) {
	return func(b *Board, data []byte) (any, error) {
		var r rocelink.SessionRequest
		if err := decode(data, &r); err != nil {
			return nil, err
		}
		return wrap(do(b.streams, r))
	}
}

// wrap keeps an error from travelling with half a reply.
func wrap[T any](reply T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// reset closes every stream and sets fabric and link up again.
func (b *Board) reset(data []byte) (any, error) {
	var r rocelink.ResetRequest
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	if b.hw == nil {
		return nil, rocelink.Refuse(rocelink.CodeNoFabric, "reset: %s", b.missing)
	}
	b.emit("reset", "asked for: %.200q", r.Reason)
	b.streams.CloseAll("the board was reset", 0, nil)
	if err := b.streams.Fault(); err != nil {
		b.lose(err)
		return nil, rocelink.Refuse(rocelink.CodeFailed, "reset: %v", err)
	}
	if err := b.hw.core.SetUp(b.cfg.MAC, b.cfg.Address); err != nil {
		b.lose(err)
		return nil, rocelink.Refuse(rocelink.CodeFailed, "reset: %v", err)
	}
	b.streams.Attach(b.hw.core)
	if b.hw.link != nil {
		if err := b.hw.link.Stop(); err != nil {
			b.log.Warn("stop the link", "err", err)
		}
		b.seeLink(b.hw.link.Status(), b.cfg.Now())
	}
	return b.sampleStatus(), nil
}

// readRegister reads one register that reading does not change.
func (b *Board) readRegister(data []byte) (any, error) {
	var r rocelink.RegisterRequest
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	bus, block, reg, err := b.register("read-register", r, func(a regs.Access) bool { return a == regs.RO || a == regs.RW || a == regs.TIK },
		"reading it has side effects or shows nothing")
	if err != nil {
		return nil, err
	}
	v, err := readValue(bus, reg)
	if err != nil {
		return nil, rocelink.Refuse(rocelink.CodeFailed, "read-register: %s.%s: %v", block, reg.Name, err)
	}
	return registerReply(block, reg, v), nil
}

// writeRegister writes one plain register and answers with what it then reads.
func (b *Board) writeRegister(data []byte) (any, error) {
	var r rocelink.RegisterRequest
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	if r.Value == nil {
		return nil, rocelink.Refuse(rocelink.CodeBadRequest, "write-register: value is missing")
	}
	bus, block, reg, err := b.register("write-register", r, func(a regs.Access) bool { return a == regs.RW },
		"only plain read-write registers can be written")
	if err != nil {
		return nil, err
	}
	v := uint64(*r.Value)
	if !reg.Wide && v > 0xFFFFFFFF {
		return nil, rocelink.Refuse(rocelink.CodeBadRequest, "write-register: value %#x: %s.%s has 32 bits", v, block, reg.Name)
	}
	before, err := readValue(bus, reg)
	if err == nil {
		if reg.Wide {
			err = regs.Reg64(reg.Offset).Write(bus, v)
		} else {
			err = regs.Reg(reg.Offset).Write(bus, uint32(v))
		}
	}
	var after uint64
	if err == nil {
		after, err = readValue(bus, reg)
	}
	if err != nil {
		return nil, rocelink.Refuse(rocelink.CodeFailed, "write-register: %s.%s: %v", block, reg.Name, err)
	}
	b.emit("register-written", "%s.%s was %#x, %#x was written, it reads %#x", block, reg.Name, before, v, after)
	return registerReply(block, reg, after), nil
}

func registerReply(block string, reg regs.Register, v uint64) rocelink.RegisterReply {
	return rocelink.RegisterReply{Version: rocelink.Version, Block: block, Name: reg.Name, Offset: reg.Offset, Value: rocelink.Count(v)}
}

func readValue(bus regs.Bus, reg regs.Register) (uint64, error) {
	if reg.Wide {
		return regs.Reg64(reg.Offset).Read(bus)
	}
	v, err := regs.Reg(reg.Offset).Read(bus)
	return uint64(v), err
}

// register finds the register of a request, which must exist in this fabric and
// be of a kind that is allowed.
func (b *Board) register(step string, r rocelink.RegisterRequest, allowed func(regs.Access) bool, why string) (regs.Bus, string, regs.Register, error) {
	refuse := func(code rocelink.Code, format string, args ...any) (regs.Bus, string, regs.Register, error) {
		return nil, "", regs.Register{}, rocelink.Refuse(code, step+": "+format, args...)
	}
	block, reg, err := lookUp(step, r)
	if err != nil {
		return nil, "", reg, err
	}
	if !allowed(reg.Access) {
		return refuse(rocelink.CodeUnsupported, "%s.%s is %v: %s", block.Name, reg.Name, reg.Access, why)
	}
	if b.hw == nil {
		return refuse(rocelink.CodeNoFabric, "%s", b.missing)
	}
	if err := b.hw.core.Check(); err != nil {
		b.lose(err)
		return refuse(rocelink.CodeNoFabric, "%v", err)
	}
	bus, ok := b.hw.blocks[block.Name]
	if !ok {
		return refuse(rocelink.CodeUnsupported, "block %s is not in this fabric, or does not answer", block.Name)
	}
	if block.Name == b.hw.macBlock && !b.hw.mac.Readable(reg.Offset) {
		return refuse(rocelink.CodeUnsupported, "%s.%s does not exist in this core: it was built without RS-FEC", block.Name, reg.Name)
	}
	return bus, block.Name, reg, nil
}

func lookUp(step string, r rocelink.RegisterRequest) (regs.Block, regs.Register, error) {
	for _, block := range slices.Concat(regs.Blocks(), regs.AXIBlocks()) {
		if block.Name != r.Block {
			continue
		}
		if reg, ok := block.Lookup(r.Register); ok {
			return block, reg, nil
		}
		return regs.Block{}, regs.Register{}, rocelink.Refuse(rocelink.CodeBadRequest, "%s: register %.40q: block %s has none of that name", step, r.Register, r.Block)
	}
	return regs.Block{}, regs.Register{}, rocelink.Refuse(rocelink.CodeBadRequest, "%s: block %.40q: the register table has none of that name", step, r.Block)
}
