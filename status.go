package rocelink

import "time"

// BoardStatus is what a board publishes each second and on every change.
type BoardStatus struct {
	Version  int       `json:"version"`   // of the contract
	Board    string    `json:"board"`     // name of the board
	Epoch    Count     `json:"epoch"`     // random number of this start of the program
	Sequence Count     `json:"sequence"`  // of this record within the epoch
	Time     time.Time `json:"time"`      // board clock
	UptimeMS int64     `json:"uptime_ms"` // milliseconds since the program started, monotonic
	// SampledMS is uptime_ms when the counters of the streams were taken.
	SampledMS int64          `json:"sampled_ms"`
	Model     string         `json:"model"`   // of the board description
	Fabric    Fabric         `json:"fabric"`  // the programmable logic
	Link      Link           `json:"link"`    // the MAC
	Streams   []StreamStatus `json:"streams"` // those that are open
}

// Fabric is the state of the programmable logic.
type Fabric struct {
	Present    bool   `json:"present"`               // identity and version are those this program knows
	Version    string `json:"version,omitempty"`     // register layout, major.minor
	Build      string `json:"build,omitempty"`       // build identifier
	Emulated   bool   `json:"emulated,omitempty"`    // the software fabric
	QueuePairs int    `json:"queue_pairs,omitempty"` // streams it can carry at once
	MaxMTU     int    `json:"max_mtu,omitempty"`     // path MTU, bytes
	Restarts   Count  `json:"restarts"`              // times the fabric was found restarted
	// Problem says what is wrong and what to do; "" when nothing is.
	Problem string `json:"problem,omitempty"` // in words; absent when there is none
	// Counters of the port, by register name in snake case ("rx_bad_icrc").
	Counters map[string]Count `json:"counters,omitempty"` // by name
}

// Link is the state of the MAC.
type Link struct {
	Driver string    `json:"driver,omitempty"` // cmac or mrmac
	State  string    `json:"state"`            // step of the bring-up, "up" when good
	Up     bool      `json:"up"`               // frames pass
	Since  time.Time `json:"since"`            // when it became up or down
	Losses Count     `json:"losses"`           // times it went from up to down
	Status string    `json:"status,omitempty"` // receive status word
	// Problem says in words why the link is not up.
	Problem  string           `json:"problem,omitempty"`  // in words; absent when there is none
	Counters map[string]Count `json:"counters,omitempty"` // by name
}

// StreamStatus is the board's view of one stream.
type StreamStatus struct {
	Version int    `json:"version,omitempty"` // when it is a reply of its own
	Stream  string `json:"stream"`            // name the agent gave the stream
	Host    string `json:"host"`              // name of the agent
	Session Count  `json:"session"`           // number the board gave at open
	Verb    Verb   `json:"verb"`              // send, send-imm, write, write-imm or read
	// State is open, running, stopping, stopped, error or closed.
	State string `json:"state"`
	// Ended: the source ended by itself.
	Ended      bool   `json:"ended,omitempty"`
	QPState    string `json:"qp_state,omitempty"` // Reset, Ready or Error
	Problem    string `json:"problem,omitempty"`  // in words; absent when there is none
	QPN        uint32 `json:"qpn"`                // of the board
	PeerQPN    uint32 `json:"peer_qpn"`           // of the host
	NextPSN    uint32 `json:"next_psn"`           // of the next new packet
	UnackedPSN uint32 `json:"unacked_psn"`        // oldest without an acknowledgement

	SourceFrames  Count `json:"source_frames"`  // taken from the source
	SourceBytes   Count `json:"source_bytes"`   // of those frames
	SourceDropped Count `json:"source_dropped"` // lost before the stream could take them
	FramesPosted  Count `json:"frames_posted"`  // handed to the queue pair
	FramesDone    Count `json:"frames_done"`    // acknowledged, or read
	BytesDone     Count `json:"bytes_done"`     // of the frames done
	PacketsSent   Count `json:"packets_sent"`   // for the first time
	PacketsResent Count `json:"packets_resent"` // again
	PacketsAcked  Count `json:"packets_acked"`  // acknowledged
	Timeouts      Count `json:"timeouts"`       // local ACK timeouts
	SequenceNAKs  Count `json:"sequence_naks"`  // NAK PSN sequence error received
	RNRNAKs       Count `json:"rnr_naks"`       // RNR NAK received: the host had no receive
	RNRMessages   Count `json:"rnr_messages"`   // messages that waited for a receive
	FatalNAKs     Count `json:"fatal_naks"`     // NAKs that end the queue pair
	ReadGood      Count `json:"read_good"`      // frames read and equal to the pattern
	ReadBad       Count `json:"read_bad"`       // frames read and different
	CreditStalls  Count `json:"credit_stalls"`  // waits for the host to release a slot
}

// States of a stream on the board.
const (
	StreamOpen     = "open"
	StreamRunning  = "running"
	StreamStopping = "stopping"
	StreamStopped  = "stopped"
	StreamError    = "error"
	StreamClosed   = "closed"
)

// HostStatus is what an agent publishes each second and on every change.
type HostStatus struct {
	Version  int          `json:"version"`   // of the contract
	Host     string       `json:"host"`      // name of the agent
	Epoch    Count        `json:"epoch"`     // random number of this start of the program
	Sequence Count        `json:"sequence"`  // of this record within the epoch
	Time     time.Time    `json:"time"`      // by the clock of who sent it
	UptimeMS int64        `json:"uptime_ms"` // milliseconds since the program started, monotonic
	Device   Device       `json:"device"`    // the RDMA device
	Streams  []HostStream `json:"streams"`   // those that are open
}

// Device is the host's RDMA device.
type Device struct {
	Provider string           `json:"provider"`           // soft or ibverbs
	Name     string           `json:"name"`               // of the device
	Address  string           `json:"address"`            // IP address of its port
	MTU      int              `json:"mtu"`                // path MTU of its port, bytes
	Active   bool             `json:"active"`             // the port carries frames
	Problem  string           `json:"problem,omitempty"`  // in words; absent when there is none
	Counters map[string]Count `json:"counters,omitempty"` // by name
}

// HostStream is the host's view of one stream.
type HostStream struct {
	Stream  string `json:"stream"`  // name the agent gave the stream
	Board   string `json:"board"`   // name of the board
	Session Count  `json:"session"` // number the board gave at open
	Verb    Verb   `json:"verb"`    // send, send-imm, write, write-imm or read
	// State is waiting, opening, running, ending, ended or failed.
	State   string `json:"state"`
	Problem string `json:"problem,omitempty"` // in words; absent when there is none
	// Opens counts the sessions of this stream since the agent started.
	Opens Count  `json:"opens"`
	Total Totals `json:"total"` // of the session
}

// Event is something that happened once.
type Event struct {
	Version int       `json:"version"` // of the contract
	From    string    `json:"from"`    // board or host name
	Time    time.Time `json:"time"`    // by the clock of who sent it
	// Kind is a short stable word such as "link-up", "stream-open",
	// "lease-lapsed", "fabric-restarted".
	Kind    string `json:"kind"`
	Stream  string `json:"stream,omitempty"`  // it concerns
	Session Count  `json:"session,omitempty"` // it concerns
	Text    string `json:"text"`              // a sentence
}
