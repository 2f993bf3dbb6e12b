package receive_test

import (
	"fmt"
	"log"
	"net/netip"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/verbs"
	"rocelink/agent/verbs/scripted"
)

// Five frames by SEND, from a peer that is played by a script.
func Example() {
	cq, qp, memory, lkey := open()

	loop, err := receive.New(receive.Config{
		CQ: cq, QP: qp, Memory: memory, LKey: lkey,
		Verb: rocelink.VerbSend, Slots: 4, Stride: 64, FrameBytes: 64,
		Sink: sink.Func(func(f *receive.Frame) receive.Verdict {
			fmt.Printf("frame %d: %s\n", f.Sequence, f.Data)
			return 0
		}),
	})
	check(err)
	check(loop.Prepare()) // the receives are posted before the peer can send
	connect(qp)
	go func() { check(loop.Run()) }()

	play(qp, loop, 5)

	loop.Stop()
	check(qp.SetError())
	for w := range loop.Windows() {
		if w.Last {
			fmt.Printf("%s: %d frames, %d bytes, %d lost\n", w.Reason, w.Total.Messages, w.Total.Bytes, w.Total.Lost())
		}
	}
	// Output:
	// frame 0: line 0
	// frame 1: line 1
	// frame 2: line 2
	// frame 3: line 3
	// frame 4: line 4
	// stopped: 5 frames, 30 bytes, 0 lost
}

// open makes what a loop needs; what it makes stays open until the end.
func open() (verbs.CompletionQueue, verbs.QueuePair, *verbs.Memory, uint32) {
	memory, err := verbs.AllocMemory(4*64, false)
	check(err)
	device, err := scripted.New(scripted.Config{}).Open("")
	check(err)
	pd, err := device.AllocPD()
	check(err)
	region, err := pd.Register(memory, verbs.LocalWrite)
	check(err)
	cq, err := device.CreateCQ(4)
	check(err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxReceives: 4})
	check(err)
	check(qp.Init(verbs.LocalWrite))
	return cq, qp, memory, region.LKey()
}

// connect brings the queue pair up with what the peer said of itself.
func connect(qp verbs.QueuePair) {
	check(qp.ReadyToReceive(verbs.PeerAttributes{QPN: 0x11, PSN: 0x22, MTU: 4096, Address: netip.MustParseAddr("192.0.2.7")}))
	check(qp.ReadyToSend(0x33))
}

// play sends n frames and returns when the loop has seen them.
func play(qp verbs.QueuePair, loop *receive.Loop, n int) {
	for i := 0; i < n; {
		err := qp.(*scripted.QueuePair).Deliver(scripted.Message{Data: fmt.Appendf(nil, "line %d", i)})
		if err == nil {
			i++
		}
	}
	for loop.Totals().Messages < rocelink.Count(n) {
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
