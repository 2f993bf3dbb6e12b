package scripted

import "fmt"

// Step is a call into the provider, as faults and records name it.
type Step uint8

// The steps.
const (
	StepOpen Step = iota
	StepPort
	StepAllocPD
	StepRegister
	StepCreateCQ
	StepCreateSRQ
	StepCreateQP
	StepInit
	StepReadyToReceive
	StepReadyToSend
	StepSetError
	StepPostReceive
	StepPoll
	StepArm
	StepWait
	StepCloseQP
	StepCloseSRQ
	StepCloseCQ
	StepCloseRegion
	StepClosePD
	StepCloseDevice
	steps
)

var stepNames = [steps]string{
	"open device", "query port", "allocate PD", "register memory", "create CQ", "create SRQ", "create QP", "INIT", "RTR", "RTS", "ERR",
	"post receive", "poll", "arm", "wait", "close QP", "close SRQ", "close CQ", "close region", "close PD", "close device",
}

// String returns the name of the step.
func (s Step) String() string {
	if s < steps {
		return stepNames[s]
	}
	return fmt.Sprintf("step %d", uint8(s))
}

// creates reports whether the step makes an object that must be closed.
func (s Step) creates() bool {
	switch s {
	case StepOpen, StepAllocPD, StepRegister, StepCreateCQ, StepCreateSRQ, StepCreateQP:
		return true
	}
	return false
}

// closes reports whether the step closes an object.
func (s Step) closes() bool { return s >= StepCloseQP && s < steps }

// Fault makes a step fail.
type Fault struct {
	Step Step
	// Nth is which call of the step from now on fails: 0 and 1 the next.
	Nth int
	// Err is what the step returns, wrapped; nil is [ErrFault].
	Err error
	// Sticky lets every later call fail too.
	Sticky bool
	// Posted is, for StepPostReceive, how many receives are taken
	// before the failure.
	Posted int
}

// Call is one recorded call. Data-path calls (post, poll, arm, wait) are
// counted and not recorded.
type Call struct {
	Step   Step
	Object string // "qp 1": kind and number in order of creation
	Err    error
}

// String returns the call in one line.
func (c Call) String() string {
	if c.Err != nil {
		return fmt.Sprintf("%v %s: %v", c.Step, c.Object, c.Err)
	}
	return fmt.Sprintf("%v %s", c.Step, c.Object)
}
