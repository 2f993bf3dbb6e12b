package receive

// Frame is one message of the stream, in the slot where the device put it. A
// sink that keeps a frame copies the struct, not the data.
type Frame struct {
	// Sequence counts the stream's frames from 0.
	Sequence uint64
	// Data is the frame and aliases the slot; it may have length 0. It must
	// not be used after the slot was given back.
	Data []byte
	// Slot is the number of the slot.
	Slot int
	// Late: a frame with a higher sequence was handed on before.
	Late bool
	// Owner takes the slot back.
	Owner Owner

	generation uint32
}

// Release gives the slot of a kept frame back to its owner. Any goroutine may
// call it. Only the first call for a frame counts.
func (f Frame) Release() { f.Owner.Release(f) }

// Intact reports whether the slot still holds this frame: neither given back
// nor overwritten by the peer. Where the peer runs free (WRITE without a credit
// word) it is false as soon as the peer may have begun to overwrite it. A sink
// that finds wrong bytes asks before it blames them on the sender.
func (f Frame) Intact() bool { return f.Owner.Intact(f) }

// Owner is who lent a frame: the Loop, or a sink that hands frames on.
type Owner interface {
	// Release and Intact are behind the Frame methods.
	Release(Frame)
	Intact(Frame) bool
	// Fail ends the loop with err as the reason. The first one counts.
	Fail(err error)
}

// Sink takes frames.
type Sink interface {
	// Take is called on the loop's thread, in the order of arrival, and holds
	// up everything behind it: it must be quick. The frame is only valid
	// during the call unless the verdict says Kept.
	Take(*Frame) Verdict
}

// Verdict is what a sink says of a frame. 0 means it is done with the frame
// and has not judged the content.
type Verdict uint8

// The flags of a verdict.
const (
	// Kept: the sink calls Frame.Release later, or has done so already.
	Kept Verdict = 1 << iota
	// Verified: the content was checked and is right.
	Verified
	// Corrupt: the content was checked and is wrong.
	Corrupt
	// Refused: the sink did not take the frame.
	Refused
)
