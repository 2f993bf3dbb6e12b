package board

import (
	"encoding/json"
	"errors"

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
	rocelink.EndpointReset:        (*Board).reset,
	rocelink.EndpointReadRegister: (*Board).readRegister,
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
	reply, err := answer(b, data)
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
		b.seeLink(b.hw.link.Status())
	}
	return b.sampleStatus(), nil
}

// readRegister reads one register that reading does not change.
func (b *Board) readRegister(data []byte) (any, error) {
	var r rocelink.RegisterRequest
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	block, reg, err := lookUp(r)
	if err != nil {
		return nil, err
	}
	switch reg.Access {
	case regs.RO, regs.RW, regs.TIK:
	default:
		return nil, rocelink.Refuse(rocelink.CodeUnsupported, "read-register: %s.%s is %v: reading it has side effects or shows nothing", block.Name, reg.Name, reg.Access)
	}
	if b.hw == nil {
		return nil, rocelink.Refuse(rocelink.CodeNoFabric, "read-register: %s", b.missing)
	}
	if err := b.hw.core.Check(); err != nil {
		b.lose(err)
		return nil, rocelink.Refuse(rocelink.CodeNoFabric, "read-register: %v", err)
	}
	bus, ok := b.hw.blocks[block.Name]
	if !ok {
		return nil, rocelink.Refuse(rocelink.CodeUnsupported, "read-register: block %s is not in this fabric, or does not answer", block.Name)
	}
	if block.Name == b.hw.macBlock && !b.hw.mac.Readable(reg.Offset) {
		return nil, rocelink.Refuse(rocelink.CodeUnsupported, "read-register: %s.%s does not exist in this core: it was built without RS-FEC", block.Name, reg.Name)
	}
	var v uint64
	if reg.Wide {
		v, err = regs.Reg64(reg.Offset).Read(bus)
	} else {
		var w uint32
		w, err = regs.Reg(reg.Offset).Read(bus)
		v = uint64(w)
	}
	if err != nil {
		return nil, rocelink.Refuse(rocelink.CodeFailed, "read-register: %s.%s: %v", block.Name, reg.Name, err)
	}
	return rocelink.RegisterReply{
		Version: rocelink.Version, Block: block.Name, Name: reg.Name, Offset: reg.Offset, Value: rocelink.Count(v),
	}, nil
}

func lookUp(r rocelink.RegisterRequest) (regs.Block, regs.Register, error) {
	for _, block := range regs.Blocks() {
		if block.Name != r.Block {
			continue
		}
		if reg, ok := block.Lookup(r.Register); ok {
			return block, reg, nil
		}
		return regs.Block{}, regs.Register{}, rocelink.Refuse(rocelink.CodeBadRequest, "read-register: register %.40q: block %s has none of that name", r.Register, r.Block)
	}
	return regs.Block{}, regs.Register{}, rocelink.Refuse(rocelink.CodeBadRequest, "read-register: block %.40q: the register table has none of that name", r.Block)
}
