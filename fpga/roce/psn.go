package roce

// PSN is a packet sequence number: 24 bits, compared by signed distance.
type PSN uint32

// PSNMask selects the 24 bits of a PSN.
const PSNMask = 1<<24 - 1

// Add returns p+n modulo 2^24. n may be negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(p)+uint32(n)) & PSNMask }

// Next returns the PSN after p.
func (p PSN) Next() PSN { return (p + 1) & PSNMask }

// Sub returns the signed distance p-q, in [-2^23, 2^23): PSN(1).Sub(0xFFFFFE)
// is 3.
func (p PSN) Sub(q PSN) int { return int(int32(uint32(p-q)<<8) >> 8) }
