package metrics

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"rocelink"
	"rocelink/agent/heard"
	"rocelink/agent/path"
)

// descriptions are all metrics there are.
var descriptions []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("rocelink_"+name, help, labels, nil)
	descriptions = append(descriptions, d)
	return d
}

// stream describes a metric of a stream.
func ofStream(name, help string) *prometheus.Desc {
	return describe("stream_"+name, help, "board", "host", "stream")
}

var (
	natsConnected  = describe("nats_connected", "Whether this agent is connected to a NATS server.")
	knownBoards    = describe("boards", "Boards heard lately.")
	knownHosts     = describe("hosts", "Hosts heard lately.")
	refusedRecords = describe("refused_records_total", "Records that were refused, by reason.", "reason")
	leftOutNames   = describe("left_out_names", "Boards, hosts and streams without metrics since there are too many.")

	boardUp       = describe("board_up", "Whether the board was heard within the last seconds.", "board")
	boardHeard    = describe("board_last_heard_timestamp_seconds", "When the board was heard last.", "board")
	boardInfo     = describe("board_info", "What the board is.", "board", "model", "fabric_version", "fabric_build", "emulated")
	boardUptime   = describe("board_uptime_seconds", "How long the board's program has run.", "board")
	boardStarts   = describe("board_restarts_total", "Times the board began anew since it was first heard.", "board")
	boardTwice    = describe("board_name_taken_twice", "Whether two boards publish under this name.", "board")
	fabricPresent = describe("fabric_present", "Whether the fabric answers and is compatible.", "board")
	linkUp        = describe("link_up", "Whether the board's Ethernet link passes frames.", "board")
	linkLosses    = describe("link_losses_total", "Times the link went down.", "board")
	macPackets    = describe("mac_packets_total", "Frames the board's MAC sent and received.", "board", "direction")
	macBytes      = describe("mac_bytes_total", "Bytes the board's MAC sent and received.", "board", "direction")
	macBadFCS     = describe("mac_bad_fcs_packets_total", "Frames received with a wrong frame check sequence.", "board")
	macPause      = describe("mac_pause_packets_total", "Pause frames sent and received.", "board", "direction")
	fecCodewords  = describe("fec_codewords_total", "Codewords with errors, by whether RS-FEC corrected them.", "board", "outcome")
	linkCause     = describe("link_cause", "Why the link is down or poor, in a word, where the board knows.", "board", "cause")
	moduleReady   = describe("module_ready", "Whether a module is plugged into the cage and answers.", "board", "cage")
	moduleInfo    = describe("module_info", "What is plugged into the cage.", "board", "cage", "identifier", "vendor", "part", "serial")
	moduleCelsius = describe("module_temperature_celsius", "Temperature of the module.", "board", "cage")
	moduleVolts   = describe("module_supply_volts", "Supply of the module.", "board", "cage")
	moduleAlarms  = describe("module_alarms", "Values beyond the module's own thresholds.", "board", "cage", "level")
	laneRx        = describe("module_lane_receive_watts", "Light that a lane of the module receives.", "board", "cage", "lane")
	laneTx        = describe("module_lane_transmit_watts", "Light that a lane of the module sends.", "board", "cage", "lane")
	laneBias      = describe("module_lane_bias_amperes", "Laser bias of a lane of the module.", "board", "cage", "lane")
	laneDark      = describe("module_lane_dark", "Whether a lane of the module receives nothing.", "board", "cage", "lane")
	clockLocked   = describe("clock_locked", "Whether a reference clock is locked, where that can be told.", "board", "clock")
	boardCelsius  = describe("board_temperature_celsius", "Temperatures of the board.", "board", "sensor")
	boardVolts    = describe("board_supply_volts", "Voltages of the board.", "board", "sensor")
	fabricPackets = describe("fabric_packets_total", "RoCE packets the fabric sent and received.", "board", "direction")
	fabricBytes   = describe("fabric_bytes_total", "Bytes of RoCE packets the fabric sent and received.", "board", "direction")
	fabricDrops   = describe("fabric_dropped_packets_total", "Packets the fabric dropped, by reason.", "board", "reason")

	hostUp        = describe("host_up", "Whether the host was heard within the last seconds.", "host")
	hostHeard     = describe("host_last_heard_timestamp_seconds", "When the host was heard last.", "host")
	hostUptime    = describe("host_uptime_seconds", "How long the host's agent has run.", "host")
	hostStarts    = describe("host_restarts_total", "Times the host's agent began anew since it was first heard.", "host")
	deviceActive  = describe("device_active", "Whether the port of the host's RDMA device carries frames.", "host", "device", "provider")
	deviceCounter = describe("device_events_total", "Counters of the host's RDMA device, by the name its driver gives them.", "host", "device", "counter")

	pathSeverity = describe("path_severity", "How the stream is: 0 in order, 1 worth a word, 2 warning, 3 critical.", "board", "host", "stream")
	pathFault    = describe("path_fault", "1 for what is wrong with the stream.", "board", "host", "stream", "rule")

	streamRunning = ofStream("running", "Whether the stream runs on the board.")
	streamOpens   = ofStream("sessions_total", "Sessions of the stream since the host's agent started.")
	heldSlots     = ofStream("held_slots", "Slots the consumer held at the end of the last window.")
	slots         = ofStream("slots", "Slots of the stream's region.")
)

// boardCounters are the counters of a stream on the board.
var boardCounters = []struct {
	desc *prometheus.Desc
	of   func(*rocelink.StreamStatus) rocelink.Count
}{
	{ofStream("source_frames_total", "Frames taken from the source."), func(s *rocelink.StreamStatus) rocelink.Count { return s.SourceFrames }},
	{ofStream("source_bytes_total", "Bytes taken from the source."), func(s *rocelink.StreamStatus) rocelink.Count { return s.SourceBytes }},
	{ofStream("source_dropped_frames_total", "Frames lost before the stream could take them."), func(s *rocelink.StreamStatus) rocelink.Count { return s.SourceDropped }},
	{ofStream("posted_frames_total", "Frames handed to the queue pair."), func(s *rocelink.StreamStatus) rocelink.Count { return s.FramesPosted }},
	{ofStream("delivered_frames_total", "Frames acknowledged whole, or read."), func(s *rocelink.StreamStatus) rocelink.Count { return s.FramesDone }},
	{ofStream("delivered_bytes_total", "Bytes of delivered frames."), func(s *rocelink.StreamStatus) rocelink.Count { return s.BytesDone }},
	{ofStream("sent_packets_total", "Packets sent for the first time."), func(s *rocelink.StreamStatus) rocelink.Count { return s.PacketsSent }},
	{ofStream("resent_packets_total", "Packets sent again."), func(s *rocelink.StreamStatus) rocelink.Count { return s.PacketsResent }},
	{ofStream("acknowledged_packets_total", "Packets acknowledged."), func(s *rocelink.StreamStatus) rocelink.Count { return s.PacketsAcked }},
	{ofStream("ack_timeouts_total", "Local ACK timeouts."), func(s *rocelink.StreamStatus) rocelink.Count { return s.Timeouts }},
	{ofStream("sequence_naks_total", "NAKs for a PSN sequence error."), func(s *rocelink.StreamStatus) rocelink.Count { return s.SequenceNAKs }},
	{ofStream("rnr_naks_total", "Receiver-not-ready NAKs."), func(s *rocelink.StreamStatus) rocelink.Count { return s.RNRNAKs }},
	{ofStream("rnr_messages_total", "Messages that waited for a receive."), func(s *rocelink.StreamStatus) rocelink.Count { return s.RNRMessages }},
	{ofStream("fatal_naks_total", "NAKs that end the queue pair."), func(s *rocelink.StreamStatus) rocelink.Count { return s.FatalNAKs }},
	{ofStream("read_good_frames_total", "Frames the board read that were right."), func(s *rocelink.StreamStatus) rocelink.Count { return s.ReadGood }},
	{ofStream("read_bad_frames_total", "Frames the board read that were wrong."), func(s *rocelink.StreamStatus) rocelink.Count { return s.ReadBad }},
	{ofStream("credit_stalls_total", "Waits for the host to release a slot."), func(s *rocelink.StreamStatus) rocelink.Count { return s.CreditStalls }},
}

// hostCounters are the counters of a stream on the host.
var hostCounters = []struct {
	desc *prometheus.Desc
	of   func(*rocelink.Totals) rocelink.Count
}{
	{ofStream("received_messages_total", "Messages the receive loop took."), func(t *rocelink.Totals) rocelink.Count { return t.Messages }},
	{ofStream("received_bytes_total", "Bytes of received messages."), func(t *rocelink.Totals) rocelink.Count { return t.Bytes }},
	{ofStream("missing_frames_total", "Frames that never arrived."), func(t *rocelink.Totals) rocelink.Count { return t.Missing }},
	{ofStream("duplicate_frames_total", "Frames that arrived again."), func(t *rocelink.Totals) rocelink.Count { return t.Duplicate }},
	{ofStream("late_frames_total", "Frames that arrived after a later one."), func(t *rocelink.Totals) rocelink.Count { return t.Late }},
	{ofStream("overrun_frames_total", "Frames overwritten before they were looked at."), func(t *rocelink.Totals) rocelink.Count { return t.Overrun }},
	{ofStream("corrupt_frames_total", "Frames with wrong content."), func(t *rocelink.Totals) rocelink.Count { return t.Corrupt }},
	{ofStream("accepted_frames_total", "Frames the sink took."), func(t *rocelink.Totals) rocelink.Count { return t.Accepted }},
	{ofStream("verified_frames_total", "Frames whose content was checked and right."), func(t *rocelink.Totals) rocelink.Count { return t.Verified }},
	{ofStream("completion_errors_total", "Completions with an error, flushes not counted."), func(t *rocelink.Totals) rocelink.Count { return t.Errors }},
}

// portCounters are the counters of a board's port that are shown, by their name
// in the record.
var portCounters = []struct {
	mac    bool // of the MAC, else of the fabric
	name   string
	desc   *prometheus.Desc
	labels []string
}{
	{true, "tx_packets", macPackets, []string{"transmit"}},
	{true, "rx_packets", macPackets, []string{"receive"}},
	{true, "tx_bytes", macBytes, []string{"transmit"}},
	{true, "rx_bytes", macBytes, []string{"receive"}},
	{true, "rx_bad_fcs", macBadFCS, nil},
	{true, "tx_pause", macPause, []string{"transmit"}},
	{true, "rx_pause", macPause, []string{"receive"}},
	{true, "rsfec_corrected", fecCodewords, []string{"corrected"}},
	{true, "rsfec_uncorrected", fecCodewords, []string{"uncorrected"}},
	{false, "tx_packets", fabricPackets, []string{"transmit"}},
	{false, "rx_packets", fabricPackets, []string{"receive"}},
	{false, "tx_bytes", fabricBytes, []string{"transmit"}},
	{false, "rx_bytes", fabricBytes, []string{"receive"}},
	{false, "tx_dropped", fabricDrops, []string{"no_link"}},
	{false, "rx_bad_icrc", fabricDrops, []string{"bad_icrc"}},
	{false, "rx_malformed", fabricDrops, []string{"malformed"}},
	{false, "rx_unknown_qp", fabricDrops, []string{"unknown_qp"}},
	{false, "rx_bad_opcode", fabricDrops, []string{"bad_opcode"}},
	{false, "rx_wrong_address", fabricDrops, []string{"wrong_address"}},
}

// board sends the metrics of a board and reports whether it is not stale.
func (s scrape) board(b heard.Board) bool {
	last := b.Last()
	fresh := b.Silent(s.view.Now) < s.view.Stale
	s.gauge(boardUp, truth(fresh), b.Name)
	s.gauge(boardHeard, float64(last.At.UnixMilli())/1e3, b.Name)
	s.counter(boardStarts, float64(b.Starts), b.Name)
	s.gauge(boardTwice, truth(b.Twice), b.Name)
	if !fresh {
		return false
	}
	s.gauge(boardInfo, 1, b.Name, label(last.Model), label(last.Fabric.Version), label(last.Fabric.Build), strconv.FormatBool(last.Fabric.Emulated))
	s.gauge(boardUptime, float64(last.UptimeMS)/1e3, b.Name)
	s.gauge(fabricPresent, truth(last.Fabric.Present), b.Name)
	s.gauge(linkUp, truth(last.Link.Up), b.Name)
	s.count(linkLosses, last.Link.Losses, []string{b.Name})
	if last.Link.Cause != "" {
		s.gauge(linkCause, 1, b.Name, label(last.Link.Cause))
	}
	s.optics(b.Name, last.BoardStatus)
	for _, c := range portCounters {
		counters := last.Fabric.Counters
		if c.mac {
			counters = last.Link.Counters
		}
		if v, ok := counters[c.name]; ok {
			s.count(c.desc, v, append([]string{b.Name}, c.labels...))
		}
	}
	return true
}

// host sends the metrics of a host and reports whether it is not stale.
func (s scrape) host(h heard.Host) bool {
	last := h.Last()
	fresh := h.Silent(s.view.Now) < s.view.Stale
	s.gauge(hostUp, truth(fresh), h.Name)
	s.gauge(hostHeard, float64(last.At.UnixMilli())/1e3, h.Name)
	s.counter(hostStarts, float64(h.Starts), h.Name)
	if !fresh {
		return false
	}
	device := label(last.Device.Name)
	s.gauge(hostUptime, float64(last.UptimeMS)/1e3, h.Name)
	s.gauge(deviceActive, truth(last.Device.Active), h.Name, device, label(last.Device.Provider))
	n := 0
	for _, name := range slices.Sorted(maps.Keys(last.Device.Counters)) {
		if !counterName(name) {
			continue
		}
		if n++; n > maxCounters {
			break
		}
		s.count(deviceCounter, last.Device.Counters[name], []string{h.Name, device, name})
	}
	return true
}

// counterName reports whether a driver could have given a counter this name.
func counterName(name string) bool {
	if name == "" || len(name) > maxLabel {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// boardStream sends what the board counts of a stream: of the session that is
// open, or of the last one while there is none.
func (s scrape) boardStream(b heard.Board, p path.Path, labels []string) {
	last := b.Last()
	var at *rocelink.StreamStatus
	for i := range last.Streams {
		st := &last.Streams[i]
		if st.Host == p.Host && st.Stream == p.Stream && (at == nil || st.State != rocelink.StreamClosed || at.State == rocelink.StreamClosed) {
			at = st
		}
	}
	s.gauge(streamRunning, truth(at != nil && at.State == rocelink.StreamRunning), labels...)
	if at == nil {
		return
	}
	for _, c := range boardCounters {
		s.count(c.desc, c.of(at), labels)
	}
}

func (s scrape) hostStream(h heard.Host, p path.Path, labels []string) {
	last := h.Last()
	var at *rocelink.HostStream
	for i := range last.Streams {
		if st := &last.Streams[i]; st.Board == p.Board && st.Stream == p.Stream {
			at = st
		}
	}
	if at == nil {
		return
	}
	s.count(streamOpens, at.Opens, labels)
	for _, c := range hostCounters {
		s.count(c.desc, c.of(&at.Total), labels)
	}
}
