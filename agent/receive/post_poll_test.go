package receive

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"rocelink/agent/verbs"
)

// postPolls has the rigs' completion queues post and poll in one call.
var postPolls bool

// postPoller is a verbs.PostPoller over two calls.
type postPoller struct {
	verbs.CompletionQueue
	posts int
}

func (p *postPoller) PostPoll(to verbs.ReceiveQueue, rs []verbs.ReceiveRequest, wcs []verbs.WorkCompletion) (int, error, int, error) {
	p.posts++
	posted, postErr := to.PostReceive(rs)
	found, err := p.Poll(wcs)
	return posted, postErr, found, err
}

func inOneCall(cq verbs.CompletionQueue) verbs.CompletionQueue {
	if postPolls {
		return &postPoller{CompletionQueue: cq}
	}
	return cq
}

// Where a device posts and polls in one call, all is as it is elsewhere.
func TestPostAndPollInOneCall(t *testing.T) {
	postPolls = true
	defer func() { postPolls = false }()
	for _, test := range []func(*testing.T){
		TestFrames, TestErrorStatus, TestCauseAfterFlush, TestRubbish, TestUnfitIsPostedAgain, TestPartialPosts, TestDeviceFailures,
		TestOverrun, TestSleep, TestStalledConsumer, TestReleaseOrder, TestRandomWalk, TestForeignRelease, TestFail, TestStop, TestStopUnderFire,
		TestSetErrorThenStop, TestDeadQueuePair, TestNoAllocations, TestPoolServesStreams, TestPoolOutlivesStreams, TestPoolFailures, TestPoolCountsLostSlots,
	} {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		t.Run(name[strings.LastIndex(name, ".")+1:], test)
	}
}
