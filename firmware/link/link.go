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
	// ResetTransceivers begins a reset of the transceivers; Reset follows once
	// TransceiversReady reports that it ended.
	ResetTransceivers() error
	TransceiversReady() (bool, error)
	// Listen receives and sends remote fault.
	Listen() error
	// Transmit sends frames.
	Transmit() error
	// Read takes the receive status at present.
	Read() (Reading, error)
}

// Reading is the state of the receiver at present. What a MAC does not tell is
// zero.
type Reading struct {
	// Aligned: the receiver is aligned to an error-free signal. The peer may
	// still say that it does not see us.
	Aligned bool
	// Good: nothing at all is wrong; frames pass.
	Good bool
	// Status is the status word for people.
	Status string

	// Silent: the registers read as ones: the MAC's clock stopped, or its logic
	// is gone.
	Silent bool
	// Lanes is how many lanes the receiver splits the signal into, PCS lanes and
	// not those of the module; Locked and Synced have a bit each: sync headers
	// found, alignment markers found.
	Lanes          int
	Locked, Synced uint32
	// MarkersLost: a signal comes, and its alignment markers do not.
	MarkersLost bool
	LocalFault  bool
	// RemoteFault: the peer says that it does not see us; PeerFault: it says that
	// its own receiver has no signal.
	RemoteFault, PeerFault bool
	HighBER                bool
}

// AllLocked reports whether every lane has block lock.
func (r Reading) AllLocked() bool {
	return r.Lanes > 0 && r.Locked == 1<<r.Lanes-1
}
