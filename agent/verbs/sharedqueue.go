package verbs

// SharedReceiveQueue is a receive queue that the queue pairs of a protection
// domain take from, each message the oldest receive. The completion names the
// queue pair (WorkCompletion.QPN) and comes to that one's completion queue.
// When the shared queue is empty every peer is told "receiver not ready".
type SharedReceiveQueue interface {
	// PostReceive is QueuePair.PostReceive, whatever the states of the queue
	// pairs. It is called by one thread at a time.
	PostReceive(rs []ReceiveRequest) (posted int, err error)
	// Limit asks for one EventSRQLimit when fewer receives than that are
	// posted; 0 takes it back.
	Limit(below int) error
	// Close fails with ErrBusy while a queue pair names the queue. Receives
	// that are posted vanish.
	Close() error
}
