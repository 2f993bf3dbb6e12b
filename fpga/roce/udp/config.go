package udp

// Config says how to open a socket. The zero value is right for most.
type Config struct {
	// ReceiveBuffer and SendBuffer are the socket buffers to ask for in bytes,
	// DefaultBuffer if 0. The system may allow less: see Conn.Buffers. A
	// receiver that falls behind loses what does not fit.
	ReceiveBuffer, SendBuffer int
	// GSO says when runs of packets leave as one buffer.
	GSO GSO
	// NoGRO has every datagram received on its own.
	NoGRO bool
}

// DefaultBuffer is what is asked for where Config says nothing: more than two
// milliseconds at 40 Gb/s.
const DefaultBuffer = 16 << 20

// GSO is when UDP segmentation offload is used.
type GSO uint8

const (
	// GSOLocal uses it towards addresses of this machine only.
	GSOLocal GSO = iota
	// GSOAlways uses it everywhere. IPv4 identifications then count up within a
	// buffer, so the far end must be software that takes them as 0.
	GSOAlways
	// GSONever does not use it.
	GSONever
)

// Kernel limits of UDP_SEGMENT: 64 segments (UDP_MAX_SEGMENTS in
// include/linux/udp.h, 128 in newer kernels), and one IP packet of 65535 bytes
// for all of them together, headers included (udp_sendmsg, ip_append_data).
const (
	maxSegments = 64
	maxGSOBytes = 65000
)

// Sizes of a Batch where nothing else is asked for. With GRO a slot holds up to
// 64 KiB, and all slots together should stay in a core's second-level cache.
const (
	defaultSlots    = 64
	defaultSlotsGRO = 16
	slotBytesGRO    = 1 << 16
	// slotBytes holds the longest packet, and enough more that what is too long
	// for one is seen to be.
	slotBytes = 4352
)
