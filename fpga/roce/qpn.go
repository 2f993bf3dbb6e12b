package roce

// QPN is a queue pair number: 24 bits.
type QPN uint32

// QPNMask selects the 24 bits of a QPN.
const QPNMask = 1<<24 - 1
