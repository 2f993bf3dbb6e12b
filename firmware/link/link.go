// Package link brings an Ethernet link up and keeps it up, whatever the MAC: it
// never waits without a bound, never deadlocks with a peer that does the same,
// and calls a link up only after several good readings in a row.
//
// A Machine is driven by calls of Step from one goroutine.
package link

// MAC is what the machine needs of a MAC driver. Methods return quickly; what
// takes time is seen in a later Reading.
type MAC interface {
	Name() string
	// Down stops both directions.
	Down() error
	// Reset configures the MAC and resets it; both directions are off.
	Reset() error
	// ResetTransceivers resets the transceivers; Reset follows.
	ResetTransceivers() error
	// Listen receives and sends remote fault.
	Listen() error
	// Transmit sends frames.
	Transmit() error
	// Read takes the receive status at present.
	Read() (Reading, error)
}

// Reading is the state of the receiver at present.
type Reading struct {
	// Aligned: the receiver is aligned to an error-free signal. The peer may
	// still say that it does not see us.
	Aligned bool
	// Good: nothing at all is wrong; frames pass.
	Good bool
	// Status is the status word for people.
	Status string
	// Diagnosis says in words what is wrong and what to look at; "" if Good.
	Diagnosis string
}
