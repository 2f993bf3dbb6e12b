package stream_test

import (
	"context"
	"fmt"
	"log"

	"rocelink"
	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/stream"
	"rocelink/agent/verbs/soft"
)

// A program of one's own takes frames from a board. The function is called on
// the receive thread; the frame's data is only valid until it returns.
func Example() {
	nc, err := rocelink.Connect(rocelink.Access{}, rocelink.Client{Name: "my instrument", Retry: true})
	if err != nil {
		log.Fatal(err)
	}
	device, err := soft.New().Open("127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	agent, err := stream.New(stream.Config{Host: "lab1", NATS: nc, Device: device})
	if err != nil {
		log.Fatal(err)
	}
	take := sink.Func(func(f *receive.Frame) receive.Verdict {
		fmt.Println(f.Sequence, len(f.Data))
		return 0
	})
	s, err := agent.Open(context.Background(), stream.Spec{Board: "demo", Count: 10, Sink: stream.SinkDiscard},
		func(int) (receive.Sink, error) { return take, nil })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Result().Problem)
}
