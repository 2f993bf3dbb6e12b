package regs

// The identity words: "RL" and the block's type.
const (
	IdentCore   = 0x524C0001
	IdentStream = 0x524C0002
)

// VersionMajor is the register layout this table describes. A driver refuses
// another major version; a larger minor version only adds registers.
const (
	VersionMajor = 1
	VersionMinor = 0
)

// header is how each of our blocks begins: it says what it is, how long it is
// and where the next one starts.
func header(ident uint32, length uint32) []Register {
	return []Register{
		{Offset: 0x000, Name: "Ident", Access: RO, Reset: ident, Doc: "What this block is: 0x524C and the block's type. 0 or 0xFFFFFFFF: no fabric here."},
		{Offset: 0x004, Name: "Version", Access: RO, Reset: VersionMajor<<16 | VersionMinor, Doc: "Register layout.", Fields: []FieldDef{
			{LSB: 0, Width: 16, Name: "Minor", Doc: "Larger minor versions only add registers."},
			{LSB: 16, Width: 16, Name: "Major", Doc: "A driver refuses a major version it does not know."},
		}},
		{Offset: 0x008, Name: "Length", Access: RO, Reset: length, Doc: "Bytes this block decodes."},
		{Offset: 0x00C, Name: "Next", Access: RO, Doc: "Offset of the next block from the start of the aperture; 0 ends the chain."},
	}
}

// command is the part every block with commands shares.
func command(values []Value) []Register {
	return []Register{
		{Offset: 0x080, Name: "Command", Access: SC, Doc: "Writing starts a command; the fabric clears the word when it is done. Write only when it reads 0.", Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "Op", Doc: "What to do.", Values: values},
			{LSB: 8, Width: 8, Name: "Index", Doc: "Queue pair or stream, from 0."},
		}},
		{Offset: 0x084, Name: "CommandStatus", Access: RO, Doc: "How the last command ended; valid when Command reads 0.", Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "Code", Doc: "Result.", Values: []Value{
				{0, "OK", "done"},
				{1, "BadOp", "no such command"},
				{2, "BadIndex", "no such queue pair or stream"},
				{3, "BadState", "not allowed in the present state"},
				{4, "BadValue", "a register holds a value out of range; CommandDetail names it"},
			}},
		}},
		{Offset: 0x088, Name: "CommandDetail", Access: RO, Doc: "After BadValue: offset of the refused register. After BadState: the present state."},
		{Offset: 0x08C, Name: "CommandCount", Access: RO, Doc: "Commands finished since reset, modulo 2^32."},
	}
}

func words(parts ...[]Register) (all []Register) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func counter(offset uint32, name, doc string) Register {
	return Register{Offset: offset, Name: name, Access: TIK, Wide: true, Doc: doc}
}

var coreBlock = Block{
	Name: "Core", Title: "RoCE v2 requester core", Length: 0x400,
	Doc: "Queue pairs of the RC requester. A queue pair is programmed through one window: fill the Qp* " +
		"registers, then Command Commit with its index. Status and counters appear in the Stat* and Rx*/Tx* " +
		"registers, all taken at one instant, when a Latch command ends. No register here has a read side effect.",
	Source: "this project",
	Regs: words(header(IdentCore, 0x400), []Register{
		{Offset: 0x010, Name: "Build", Access: RO, Doc: "Build identifier of the fabric."},
		{Offset: 0x014, Name: "Caps", Access: RO, Doc: "What this build holds.", Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "QueuePairs", Doc: "Queue pairs, 1..16."},
			{LSB: 8, Width: 3, Name: "MaxMTU", Doc: "Largest path MTU, IBTA code 1..5 = 256..4096 bytes."},
			{LSB: 16, Width: 1, Name: "IPv6", Doc: "IPv6 is supported."},
			{LSB: 17, Width: 1, Name: "Read", Doc: "READ requests are supported."},
			{LSB: 18, Width: 1, Name: "External", Doc: "A source outside the generator is connected."},
			{LSB: 19, Width: 1, Name: "Emulated", Doc: "This is the software fabric, not logic."},
		}},
		{Offset: 0x018, Name: "MaxWindow", Access: RO, Doc: "Largest number of unacknowledged packets of one queue pair (slots of the retransmit ring)."},
		{Offset: 0x01C, Name: "Scratch", Access: RW, Doc: "Holds what is written; tests the bus."},
		{Offset: 0x020, Name: "Boot", Access: RO, Doc: "Changes each time the fabric starts or is reset; a driver that sees another value knows that all queue pairs are gone. 0 where the fabric cannot tell."},
		{Offset: 0x024, Name: "ClockKHz", Access: RO, Doc: "Core clock in kHz: the unit of Uptime."},
		{Offset: 0x028, Name: "MaxReads", Access: RO, Doc: "READ requests one queue pair has outstanding at most; the peer must allow as many (max_dest_rd_atomic)."},

		{Offset: 0x040, Name: "Control", Access: RW, Doc: "Global switches.", Fields: []FieldDef{
			{LSB: 0, Width: 1, Name: "Enable", Doc: "0: nothing is sent and nothing received; the present packet ends."},
		}},
		{Offset: 0x044, Name: "LocalMACLow", Access: RW, Doc: "Source MAC, octets 3..6: the third in bits 31..24, the last in bits 7..0."},
		{Offset: 0x048, Name: "LocalMACHigh", Access: RW, Doc: "Source MAC, octets 1 and 2 in bits 15..0."},
		{Offset: 0x050, Name: "LocalIP0", Access: RW, Doc: "Source address, network order, bits 127..96. IPv4 is written as ::ffff:a.b.c.d."},
		{Offset: 0x054, Name: "LocalIP1", Access: RW, Doc: "Source address, bits 95..64."},
		{Offset: 0x058, Name: "LocalIP2", Access: RW, Doc: "Source address, bits 63..32."},
		{Offset: 0x05C, Name: "LocalIP3", Access: RW, Doc: "Source address, bits 31..0; an IPv4 address is here."},
	}, command([]Value{
		{1, "Commit", "take the Qp* registers into queue pair Index and make it ready to send; only in state Reset. Refused with the register's offset: a value out of its range, a local QPN that another queue pair has, an unspecified or multicast address, addresses of two families"},
		{2, "Reset", "drop everything of queue pair Index and return it to state Reset; a stream that runs on it goes to Error"},
		{3, "Latch", "copy status and counters of queue pair Index and of the port into the Stat*, Rx* and Tx* registers"},
		{4, "ResetAll", "Reset of every queue pair, and the port's counters are cleared; Boot stays"},
	}), []Register{
		{Offset: 0x100, Name: "QpConfig", Access: RW, Doc: "Shape of the queue pair.", Fields: []FieldDef{
			{LSB: 0, Width: 3, Name: "MTU", Doc: "Path MTU, IBTA code 1..5 = 256..4096 bytes."},
			{LSB: 8, Width: 5, Name: "Timeout", Doc: "Local ACK timeout 4.096 µs·2^n; 0 waits for ever (IBTA vol. 1, 9.7.6.1.3)."},
			{LSB: 16, Width: 3, Name: "RetryCount", Doc: "Retries after a timeout or a sequence NAK before the queue pair goes to Error."},
			{LSB: 20, Width: 3, Name: "RNRRetry", Doc: "Retries after RNR NAK; 7 retries for ever (IBTA vol. 1, 9.7.5.2.8)."},
		}},
		{Offset: 0x104, Name: "QpLocalQPN", Access: RW, Doc: "QPN on which acknowledgements come back, 24 bits, 2 or more (0 and 1 are for management)."},
		{Offset: 0x108, Name: "QpRemoteQPN", Access: RW, Doc: "Destination QPN, 24 bits, 2 or more."},
		{Offset: 0x10C, Name: "QpStartPSN", Access: RW, Doc: "PSN of the first packet, 24 bits."},
		{Offset: 0x110, Name: "QpWindow", Access: RW, Doc: "Most unacknowledged packets, 1..MaxWindow."},
		{Offset: 0x114, Name: "QpSourcePort", Access: RW, Doc: "UDP source port, 16 bits, not 0."},
		{Offset: 0x118, Name: "QpTraffic", Access: RW, Doc: "IP header bytes.", Fields: []FieldDef{
			{LSB: 0, Width: 8, Name: "Class", Doc: "IPv4 TOS or IPv6 traffic class (DSCP in bits 7..2)."},
			{LSB: 8, Width: 8, Name: "HopLimit", Doc: "IPv4 TTL or IPv6 hop limit, not 0."},
		}},
		{Offset: 0x11C, Name: "QpPKey", Access: RW, Reset: 0xFFFF, Doc: "P_Key, 16 bits."},
		{Offset: 0x120, Name: "QpRemoteMACLow", Access: RW, Doc: "Destination MAC, octets 3..6; zero and multicast are refused."},
		{Offset: 0x124, Name: "QpRemoteMACHigh", Access: RW, Doc: "Destination MAC, octets 1 and 2."},
		{Offset: 0x130, Name: "QpRemoteIP0", Access: RW, Doc: "Destination address, bits 127..96, as LocalIP0."},
		{Offset: 0x134, Name: "QpRemoteIP1", Access: RW, Doc: "Destination address, bits 95..64."},
		{Offset: 0x138, Name: "QpRemoteIP2", Access: RW, Doc: "Destination address, bits 63..32."},
		{Offset: 0x13C, Name: "QpRemoteIP3", Access: RW, Doc: "Destination address, bits 31..0."},

		{Offset: 0x180, Name: "StatState", Access: RO, Doc: "State of the latched queue pair.", Fields: []FieldDef{
			{LSB: 0, Width: 4, Name: "State", Doc: "State.", Values: []Value{
				{0, "Reset", "not programmed"},
				{1, "Ready", "sends"},
				{2, "Error", "stopped by the cause beside"},
			}},
			{LSB: 8, Width: 8, Name: "Cause", Doc: "Why the queue pair is in Error.", Values: []Value{
				{0, "None", "no error"},
				{1, "RetryExceeded", "no acknowledgement after RetryCount retries"},
				{2, "RNRRetryExceeded", "receiver not ready after RNRRetry retries"},
				{3, "RemoteInvalidRequest", "NAK invalid request"},
				{4, "RemoteAccess", "NAK remote access error: rkey, bounds or permission"},
				{5, "RemoteOperational", "NAK remote operational error"},
				{6, "BadResponse", "a response that no request of ours explains"},
			}},
		}},
		{Offset: 0x184, Name: "StatNextPSN", Access: RO, Doc: "PSN of the next new packet."},
		{Offset: 0x188, Name: "StatUnackedPSN", Access: RO, Doc: "Oldest unacknowledged PSN; equal to StatNextPSN when all is acknowledged."},
		{Offset: 0x18C, Name: "StatMSN", Access: RO, Doc: "Message sequence number last received, 24 bits."},
		{Offset: 0x190, Name: "StatIndex", Access: RO, Doc: "Queue pair of the latched values."},
		counter(0x198, "Uptime", "Core clock cycles since the fabric started."),
		counter(0x1A0, "StatMessagesPosted", "Messages handed to the queue pair."),
		counter(0x1A8, "StatMessagesAcked", "Messages the peer acknowledged (READ: data complete)."),
		counter(0x1B0, "StatBytesPosted", "Payload bytes of the messages posted."),
		counter(0x1B8, "StatBytesAcked", "Payload bytes of the messages acknowledged."),
		counter(0x1C0, "StatPacketsSent", "Packets sent for the first time."),
		counter(0x1C8, "StatPacketsResent", "Packets sent again."),
		counter(0x1D0, "StatPacketsAcked", "Packets acknowledged."),
		counter(0x1D8, "StatTimeouts", "Local ACK timeouts."),
		counter(0x1E0, "StatSequenceNAKs", "NAK PSN sequence error received."),
		counter(0x1E8, "StatRNRNAKs", "RNR NAK received."),
		counter(0x1F0, "StatRNRMessages", "Messages that waited for a receiver at least once."),
		counter(0x1F8, "StatFatalNAKs", "NAK invalid request, remote access or remote operational error received."),
		counter(0x200, "StatAcksReceived", "ACK packets received that moved the window."),
		counter(0x208, "StatStaleAcks", "ACK packets received for PSNs already acknowledged or never sent."),
		counter(0x210, "StatReadResponses", "READ response packets accepted."),
		counter(0x218, "StatReadGaps", "READ response packets with an unexpected PSN; the request is repeated from there."),
		counter(0x220, "StatWindowStalls", "Times the queue pair had work but the window was full."),

		counter(0x280, "TxPackets", "RoCE packets sent by all queue pairs."),
		counter(0x288, "TxBytes", "Bytes of those frames, Ethernet header to ICRC."),
		counter(0x290, "TxDropped", "Frames the MAC did not take."),
		counter(0x298, "RxPackets", "Frames received for UDP port 4791."),
		counter(0x2A0, "RxBytes", "Bytes of those frames."),
		counter(0x2A8, "RxBadICRC", "Frames with a wrong ICRC."),
		counter(0x2B0, "RxMalformed", "Frames whose headers or lengths contradict each other."),
		counter(0x2B8, "RxUnknownQP", "Frames for a QPN that is not ready here."),
		counter(0x2C0, "RxBadOpcode", "Frames with an opcode a requester does not expect."),
		counter(0x2C8, "RxWrongAddress", "Frames whose addresses are not those of the queue pair."),
	}),
}
