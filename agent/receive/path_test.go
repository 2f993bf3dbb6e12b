package receive_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/soft"
	"rocelink/fpga/model"
	"rocelink/fpga/pattern"
	"rocelink/fpga/regs"
	"rocelink/fpga/roce"
)

// address n of this process in 127.43.0.0/16.
func address(n int) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, 43, byte(pid >> 4), byte(pid<<4) | byte(n)})
}

// program writes registers of a block and reads them; a refusal ends the test.
type program struct {
	testing.TB
	bus regs.Bus
}

func (p program) set(r regs.Reg, v uint32) {
	p.Helper()
	if err := r.Write(p.bus, v); err != nil {
		p.Fatal(err)
	}
}

func (p program) set64(r regs.Reg64, v uint64) {
	p.Helper()
	if err := r.Write(p.bus, v); err != nil {
		p.Fatal(err)
	}
}

func (p program) ip(r regs.Reg, a netip.Addr) {
	b := a.As16()
	for i := range 4 {
		p.set(r+regs.Reg(4*i), uint32(b[4*i])<<24|uint32(b[4*i+1])<<16|uint32(b[4*i+2])<<8|uint32(b[4*i+3]))
	}
}

// command runs one on index 0. It has ended when the write returns.
func (p program) command(command, status regs.Reg, op uint32) {
	p.Helper()
	p.set(command, op)
	if code, err := status.Read(p.bus); err != nil || code != 0 {
		p.Fatalf("command %d: code %d, %v", op, code, err)
	}
}

// The fabric model sends to the software provider over real sockets, and the
// loop verifies: every verb, with the PSN running over its end, clean and with
// packets lost, duplicated, reordered and corrupted.
func TestFabricToLoopOverTheWrap(t *testing.T) {
	const frames, frameBytes, slots, stride, mtu = 200, 5000, 16, 5056, 1024
	faults := map[string]model.FaultConfig{
		"clean":  {},
		"faults": {Drop: 1, Duplicate: 1, Reorder: 1, Corrupt: 1, Seed: 3},
	}
	n := 0
	for fault, config := range faults {
		for code, verb := range rocelink.Verbs { // in the order of the register's values
			n += 2
			host, board := address(n%14), address(n%14+1)
			t.Run(fmt.Sprintf("%s %s", verb, fault), func(t *testing.T) {
				dev, err := soft.New().Open(host.String())
				if err != nil {
					t.Fatal(err)
				}
				undo := []func() error{dev.Close}
				defer func() {
					for i := len(undo) - 1; i >= 0; i-- {
						if err := undo[i](); err != nil {
							t.Error(err)
						}
					}
				}()
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				pd, err := dev.AllocPD()
				must(err)
				undo = append(undo, pd.Close)
				memory, err := verbs.AllocMemory(slots*stride+64, false)
				must(err)
				undo = append(undo, memory.Free)
				access := verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
				region, err := pd.Register(memory, access)
				must(err)
				undo = append(undo, region.Close)
				cq, err := dev.CreateCQ(slots)
				must(err)
				undo = append(undo, cq.Close)
				qp, err := pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: slots})
				must(err)
				undo = append(undo, qp.Close)
				must(qp.Init(access))
				verify, err := sink.NewVerify(sink.VerifyConfig{Pattern: pattern.PRBS31})
				must(err)
				c := receive.Config{QP: qp, CQ: cq, Memory: memory, LKey: region.LKey(), Verb: verb, Slots: slots, Stride: stride,
					FrameBytes: frameBytes, Pattern: pattern.PRBS31, Sink: verify}
				if verb == rocelink.VerbWrite {
					c.CreditOffset = slots * stride
				}
				loop, err := receive.New(c)
				must(err)
				must(loop.Prepare())
				const qpn, psn = 0x4711, roce.PSN(0xFFFFE0)
				must(qp.ReadyToReceive(verbs.PeerAttributes{QPN: qpn, PSN: psn, Address: board, MTU: mtu, MinRNRTimer: 12, MaxReads: 16}))
				must(qp.ReadyToSend(1))
				ended := make(chan error, 1)
				go func() { ended <- loop.Run() }()
				// Also when the test fails: the loop looks into the memory.
				halt := sync.OnceValue(func() error {
					loop.Stop()
					return errors.Join(qp.SetError(), <-ended)
				})
				undo = append(undo, halt)

				driver, err := model.NewDriver(model.Config{}, model.DriverConfig{Faults: config})
				must(err)
				ctx, cancel := context.WithCancel(t.Context())
				driven := make(chan error, 1)
				go func() { driven <- driver.Run(ctx) }()
				defer func() { cancel(); must(<-driven) }()
				bus := driver.Fabric().Bus()
				mac := program{t, regs.At(bus, model.CMACBase)}
				mac.set(regs.CMACConfigRx, regs.CMACConfigRxEnable.Of(1))
				mac.set(regs.CMACConfigTx, regs.CMACConfigTxEnable.Of(1))
				core := program{t, regs.At(bus, model.CoreBase)}
				core.ip(regs.CoreLocalIP0, board)
				core.set(regs.CoreLocalMACLow, 1)
				core.set(regs.CoreControl, 1)
				core.set(regs.CoreQpConfig, regs.CoreQpConfigMTU.Of(uint32(roce.MTU(mtu).Code()))|regs.CoreQpConfigTimeout.Of(16)|regs.CoreQpConfigRetryCount.Of(7)|regs.CoreQpConfigRNRRetry.Of(7))
				core.set(regs.CoreQpLocalQPN, qpn)
				core.set(regs.CoreQpRemoteQPN, uint32(qp.QPN()))
				core.set(regs.CoreQpStartPSN, uint32(psn))
				core.set(regs.CoreQpWindow, 64)
				core.set(regs.CoreQpSourcePort, roce.Port)
				core.set(regs.CoreQpTraffic, regs.CoreQpTrafficHopLimit.Of(64))
				core.set(regs.CoreQpPKey, roce.PKeyDefault)
				core.set(regs.CoreQpRemoteMACLow, 2)
				core.ip(regs.CoreQpRemoteIP0, host)
				core.command(regs.CoreCommand, regs.CoreCommandStatus, regs.CoreCommandOpCommit)
				stream := program{t, regs.At(bus, model.StreamBase)}
				stream.set(regs.StreamConfig, regs.StreamConfigVerb.Of(uint32(code))|regs.StreamConfigPattern.Of(regs.StreamConfigPatternPRBS31))
				stream.set(regs.StreamFrameBytes, frameBytes)
				stream.set(regs.StreamSlots, slots)
				stream.set(regs.StreamStride, stride)
				stream.set64(regs.StreamBase, region.Address())
				stream.set(regs.StreamRKey, region.RKey())
				if verb == rocelink.VerbWrite {
					stream.set64(regs.StreamCredit, region.Address()+slots*stride)
				}
				stream.set64(regs.StreamCount, frames)
				stream.command(regs.StreamCommand, regs.StreamCommandStatus, regs.StreamCommandOpCommit)
				stream.command(regs.StreamCommand, regs.StreamCommandStatus, regs.StreamCommandOpStart)
				latched := func(b program, r regs.Reg64) uint64 {
					v, err := r.Read(b.bus)
					must(err)
					return v
				}
				for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
					stream.command(regs.StreamCommand, regs.StreamCommandStatus, regs.StreamCommandOpLatch)
					done := latched(stream, regs.StreamStatFramesDone)
					if done == frames && (verb == rocelink.VerbRead || loop.Totals().Messages == frames) {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("%d of %d frames acknowledged, %d received: %v", done, frames, loop.Totals().Messages, dev.Counters())
					}
				}
				core.command(regs.CoreCommand, regs.CoreCommandStatus, regs.CoreCommandOpLatch)
				next, err := regs.CoreStatNextPSN.Read(core.bus)
				must(err)
				if roce.PSN(next) >= psn {
					t.Errorf("next PSN %#x: it did not run over its end", next)
				}
				must(halt())
				if verb == rocelink.VerbRead {
					if good, bad := latched(stream, regs.StreamStatReadGood), latched(stream, regs.StreamStatReadBad); good != frames || bad != 0 {
						t.Errorf("read %d right and %d wrong of %d", good, bad, frames)
					}
					return
				}
				total := loop.Totals()
				if total.Verified != frames || total.Bytes != frames*frameBytes || total.Lost()+total.Late+total.Duplicate != 0 {
					t.Errorf("totals %+v", total)
				}
			})
		}
	}
}
