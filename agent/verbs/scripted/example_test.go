package scripted_test

import (
	"fmt"
	"net/netip"

	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// A test plays the peer: one message arrives, then the queue pair fails.
func Example() {
	p := scripted.New(scripted.Config{})
	device, _ := p.Open("")
	pd, _ := device.AllocPD()
	cq, _ := device.CreateCQ(2)
	qp, _ := pd.CreateQP(verbs.QPConfig{RecvCQ: cq, MaxReceives: 2})
	_ = qp.Init(verbs.LocalWrite | verbs.RemoteWrite)
	_, _ = qp.PostReceive([]verbs.ReceiveRequest{{ID: 1}, {ID: 2}})
	_ = qp.ReadyToReceive(verbs.PeerAttributes{Address: netip.MustParseAddr("192.0.2.2"), MTU: 4096})

	_ = p.QueuePairs()[0].Deliver(scripted.Message{Write: true, Imm: 42})
	p.QueuePairs()[0].Fail(verbs.LocalAccessError, 0x88)

	wcs := make([]verbs.WorkCompletion, 8)
	n, _ := cq.Poll(wcs)
	for _, wc := range wcs[:n] {
		fmt.Println(wc.ID, wc.Status, wc.Imm.Uint32())
	}
	_, _, _, _ = qp.Close(), cq.Close(), pd.Close(), device.Close()
	fmt.Println(p.CheckUnwound())
	// Output:
	// 1 success 42
	// 2 local access error 0
	// <nil>
}
