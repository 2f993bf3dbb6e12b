package rocelink

import "time"

// BoardStatus is what a board publishes each second and on every change.
type BoardStatus struct {
	Version  int            `json:"version"`
	Board    string         `json:"board"`
	Epoch    Count          `json:"epoch"`
	Sequence Count          `json:"sequence"` // of this record within the epoch
	Time     time.Time      `json:"time"`     // board clock
	UptimeMS int64          `json:"uptime_ms"`
	Model    string         `json:"model"` // of the board description
	Fabric   Fabric         `json:"fabric"`
	Link     Link           `json:"link"`
	Streams  []StreamStatus `json:"streams"`
}

// Fabric is the state of the programmable logic.
type Fabric struct {
	Present    bool   `json:"present"`
	Version    string `json:"version,omitempty"`
	Build      string `json:"build,omitempty"`
	Emulated   bool   `json:"emulated,omitempty"`
	QueuePairs int    `json:"queue_pairs,omitempty"`
	MaxMTU     int    `json:"max_mtu,omitempty"`
	Restarts   Count  `json:"restarts"`
	// Problem says what is wrong and what to do; "" when nothing is.
	Problem string `json:"problem,omitempty"`
	// Counters of the port, by register name in snake case ("rx_bad_icrc").
	Counters map[string]Count `json:"counters,omitempty"`
}

// Link is the state of the MAC.
type Link struct {
	Driver string    `json:"driver,omitempty"`
	State  string    `json:"state"` // step of the bring-up, "up" when good
	Up     bool      `json:"up"`
	Since  time.Time `json:"since"`
	Losses Count     `json:"losses"`           // times it went from up to down
	Status string    `json:"status,omitempty"` // receive status word
	// Problem says in words why the link is not up.
	Problem  string           `json:"problem,omitempty"`
	Counters map[string]Count `json:"counters,omitempty"`
}

// StreamStatus is the board's view of one stream.
type StreamStatus struct {
	Version int    `json:"version,omitempty"` // when it is a reply of its own
	Stream  string `json:"stream"`
	Host    string `json:"host"`
	Session Count  `json:"session"`
	Verb    Verb   `json:"verb"`
	// State is open, running, stopping, stopped, error or closed.
	State string `json:"state"`
	// Ended: the source ended by itself.
	Ended      bool   `json:"ended,omitempty"`
	QPState    string `json:"qp_state,omitempty"`
	Problem    string `json:"problem,omitempty"`
	QPN        uint32 `json:"qpn"`      // of the board
	PeerQPN    uint32 `json:"peer_qpn"` // of the host
	NextPSN    uint32 `json:"next_psn"`
	UnackedPSN uint32 `json:"unacked_psn"`

	SourceFrames  Count `json:"source_frames"`
	SourceBytes   Count `json:"source_bytes"`
	SourceDropped Count `json:"source_dropped"`
	FramesPosted  Count `json:"frames_posted"`
	FramesDone    Count `json:"frames_done"` // acknowledged, or read
	BytesDone     Count `json:"bytes_done"`
	PacketsSent   Count `json:"packets_sent"`
	PacketsResent Count `json:"packets_resent"`
	PacketsAcked  Count `json:"packets_acked"`
	Timeouts      Count `json:"timeouts"`
	SequenceNAKs  Count `json:"sequence_naks"`
	RNRNAKs       Count `json:"rnr_naks"`
	RNRMessages   Count `json:"rnr_messages"`
	FatalNAKs     Count `json:"fatal_naks"`
	ReadGood      Count `json:"read_good"`
	ReadBad       Count `json:"read_bad"`
	CreditStalls  Count `json:"credit_stalls"`
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
	Version  int          `json:"version"`
	Host     string       `json:"host"`
	Epoch    Count        `json:"epoch"`
	Sequence Count        `json:"sequence"`
	Time     time.Time    `json:"time"`
	UptimeMS int64        `json:"uptime_ms"`
	Device   Device       `json:"device"`
	Streams  []HostStream `json:"streams"`
}

// Device is the host's RDMA device.
type Device struct {
	Provider string           `json:"provider"`
	Name     string           `json:"name"`
	Address  string           `json:"address"`
	MTU      int              `json:"mtu"`
	Active   bool             `json:"active"`
	Problem  string           `json:"problem,omitempty"`
	Counters map[string]Count `json:"counters,omitempty"`
}

// HostStream is the host's view of one stream.
type HostStream struct {
	Stream  string `json:"stream"`
	Board   string `json:"board"`
	Session Count  `json:"session"`
	Verb    Verb   `json:"verb"`
	// State is waiting, opening, running, ending, ended or failed.
	State   string `json:"state"`
	Problem string `json:"problem,omitempty"`
	// Opens counts the sessions of this stream since the agent started.
	Opens Count  `json:"opens"`
	Total Totals `json:"total"`
}

// Event is something that happened once.
type Event struct {
	Version int       `json:"version"`
	From    string    `json:"from"` // board or host name
	Time    time.Time `json:"time"`
	// Kind is a short stable word such as "link-up", "stream-open",
	// "lease-lapsed", "fabric-restarted".
	Kind    string `json:"kind"`
	Stream  string `json:"stream,omitempty"`
	Session Count  `json:"session,omitempty"`
	Text    string `json:"text"`
}
