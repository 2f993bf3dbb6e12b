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
	SampledMS int64    `json:"sampled_ms"`
	Model     string   `json:"model"`             // of the board description
	Fabric    Fabric   `json:"fabric"`            // the programmable logic
	Link      Link     `json:"link"`              // the MAC
	Modules   []Module `json:"modules,omitempty"` // cages of pluggable modules
	Clocks    []Clock  `json:"clocks,omitempty"`  // reference clocks the board sets
	Sensors   []Sensor `json:"sensors,omitempty"` // temperatures and voltages
	Image     *Image   `json:"image,omitempty"`   // what the board booted; absent where it did not boot an image of ours
	// Problem is about the board as a whole, such as a broken configuration on
	// its card; the senders stay off while it says so.
	Problem string         `json:"problem,omitempty"` // in words; absent when there is none
	Streams []StreamStatus `json:"streams"`           // those that are open
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
	FEC    string    `json:"fec,omitempty"`    // rs or off; absent where the MAC has none
	Cages  []string  `json:"cages,omitempty"`  // that carry the port's lanes
	// Problem says in words why the link is not up, or why it is up and poor.
	Problem string `json:"problem,omitempty"` // in words; absent when there is none
	// Cause is the same as a stable word, one of the Cause constants.
	Cause    string           `json:"cause,omitempty"`    // stable word for the problem
	Cage     string           `json:"cage,omitempty"`     // the cage the cause is in
	Lane     int              `json:"lane,omitempty"`     // of that cage, from 1
	Remedy   string           `json:"remedy,omitempty"`   // what to do about it
	Counters map[string]Count `json:"counters,omitempty"` // by name
}

// Causes of a link that is down or poor.
const (
	CauseNoModule      = "no-module"       // the cage is empty
	CauseModuleFailed  = "module-failed"   // plugged, but does not answer, or is of no use here
	CauseModuleStarts  = "module-starting" // plugged a moment ago
	CauseLowPower      = "low-power"       // the module is in low power or in reset
	CauseTxDisabled    = "tx-disabled"     // a lane of the module is switched off, or its laser failed
	CauseNoLight       = "no-light"        // nothing received on Lane
	CauseNoClock       = "no-clock"        // the reference clock is missing or not locked
	CauseNoSignal      = "no-signal"       // no lane locks, and there are no optics to ask
	CauseWrongRate     = "wrong-lane-rate" // light, but no lane locks
	CauseFECMismatch   = "fec-mismatch"    // lanes lock, codewords or markers do not
	CauseNotAligned    = "not-aligned"     // lanes lock but do not align
	CausePeerBlind     = "peer-blind"      // the peer says that it does not see us
	CauseHighBER       = "high-ber"        // too many bit errors
	CauseMACMissing    = "mac-missing"     // the MAC does not answer as one
	CauseFabricMissing = "fabric-missing"  // no programmable logic of ours
	CauseStarting      = "starting"        // a step of the bring-up, nothing is known to be wrong
)

// Module is a cage and the pluggable module in it. A nil value is one the module
// does not monitor.
type Module struct {
	Cage string `json:"cage"` // name in the board description
	// Phase is empty, plugged, reset, starting, ready or failed.
	Phase      string    `json:"phase"`
	Since      time.Time `json:"since"`                // of the phase
	Insertions Count     `json:"insertions"`           // modules that became ready
	Identifier string    `json:"identifier,omitempty"` // QSFP28, SFP28, ...
	Vendor     string    `json:"vendor,omitempty"`
	Part       string    `json:"part,omitempty"`
	Serial     string    `json:"serial,omitempty"`
	Copper     bool      `json:"copper,omitempty"`    // a copper cable
	LowPower   bool      `json:"low_power,omitempty"` // by its pin or its register

	TemperatureC *float64     `json:"temperature_c,omitempty"` // °C
	VccV         *float64     `json:"vcc_v,omitempty"`         // V
	Lanes        []ModuleLane `json:"lanes,omitempty"`
	Alarms       []string     `json:"alarms,omitempty"`   // values beyond the module's alarm thresholds
	Warnings     []string     `json:"warnings,omitempty"` // values beyond its warning thresholds
	Problem      string       `json:"problem,omitempty"`  // in words; absent when there is none
}

// ModuleLane is one lane of a module. A nil value is one the module does not
// monitor; powers are in mW since 0 mW has no dBm.
type ModuleLane struct {
	Lane       int      `json:"lane"`                  // from 1
	RxPowerMW  *float64 `json:"rx_power_mw,omitempty"` // mW
	TxPowerMW  *float64 `json:"tx_power_mw,omitempty"` // mW
	TxBiasMA   *float64 `json:"tx_bias_ma,omitempty"`  // mA
	NoLight    bool     `json:"no_light,omitempty"`    // measured or flagged: nothing is received
	TxDisabled bool     `json:"tx_disabled,omitempty"` // switched off
	TxFault    bool     `json:"tx_fault,omitempty"`    // the laser failed
}

// Clock is a reference clock.
type Clock struct {
	Name    string  `json:"name"`              // in the board description
	Hz      float64 `json:"hz,omitempty"`      // set frequency
	Locked  *bool   `json:"locked,omitempty"`  // absent where it cannot be told
	Problem string  `json:"problem,omitempty"` // in words; absent when there is none
}

// Sensor is one measured value of the board.
type Sensor struct {
	Name  string  `json:"name"`  // as the kernel's driver calls it
	Unit  string  `json:"unit"`  // C or V
	Value float64 `json:"value"` // in that unit
}

// Image is the boot image that runs.
type Image struct {
	Build string `json:"build,omitempty"` // identifier given when it was built
	Slot  string `json:"slot,omitempty"`  // a or b; absent where there is one only
	// Trial: the image is new and counts as bad if the board restarts before it
	// is confirmed.
	Trial bool `json:"trial,omitempty"`
	// FellBack: the newer image in the other slot did not come up.
	FellBack bool   `json:"fell_back,omitempty"`
	Problem  string `json:"problem,omitempty"` // in words; absent when there is none
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
	Cause      string `json:"cause,omitempty"`    // stable word for the problem, one of the StreamCause constants
	QPN        uint32 `json:"qpn"`                // of the board
	PeerQPN    uint32 `json:"peer_qpn"`           // of the host
	NextPSN    uint32 `json:"next_psn"`           // of the next new packet
	UnackedPSN uint32 `json:"unacked_psn"`        // oldest without an acknowledgement

	// Counters. One that may be absent is 0 then.
	SourceFrames  Count `json:"source_frames"`            // taken from the source
	SourceBytes   Count `json:"source_bytes"`             // of those frames
	SourceDropped Count `json:"source_dropped,omitempty"` // lost before the stream could take them
	FramesPosted  Count `json:"frames_posted"`            // handed to the queue pair
	FramesDone    Count `json:"frames_done"`              // acknowledged, or read
	BytesDone     Count `json:"bytes_done"`               // of the frames done
	PacketsSent   Count `json:"packets_sent"`             // for the first time
	PacketsResent Count `json:"packets_resent,omitempty"` // again
	PacketsAcked  Count `json:"packets_acked"`            // acknowledged
	Timeouts      Count `json:"timeouts,omitempty"`       // local ACK timeouts
	SequenceNAKs  Count `json:"sequence_naks,omitempty"`  // NAK PSN sequence error received
	RNRNAKs       Count `json:"rnr_naks,omitempty"`       // RNR NAK received: the host had no receive
	RNRMessages   Count `json:"rnr_messages,omitempty"`   // messages that waited for a receive
	FatalNAKs     Count `json:"fatal_naks,omitempty"`     // NAKs that end the queue pair
	ReadGood      Count `json:"read_good,omitempty"`      // frames read and equal to the pattern
	ReadBad       Count `json:"read_bad,omitempty"`       // frames read and different
	CreditStalls  Count `json:"credit_stalls,omitempty"`  // waits for the host to release a slot
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

// Causes of a stream's end or halt.
const (
	StreamCauseRetry      = "retry-exceeded"         // the host did not acknowledge
	StreamCauseRNR        = "rnr-retry-exceeded"     // the host had no receive for too long
	StreamCauseAccess     = "remote-access-error"    // rkey or range refused
	StreamCauseRequest    = "invalid-request"        // the host refused the request
	StreamCauseOperation  = "remote-operation-error" // the host failed
	StreamCauseLink       = "link-down"
	StreamCauseFabric     = "fabric-lost"
	StreamCauseLease      = "lease-lapsed"      // the host did not renew
	StreamCauseClosed     = "closed-by-request" // by its host or an operator
	StreamCauseSourceDone = "source-ended"
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
