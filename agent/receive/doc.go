// Package receive is the receive loop: it takes what a board sends to one queue
// pair, hands each frame to a sink, gives the slot back to the device, and
// publishes a window about once a second that says what came and what did not.
//
// The order of a session is New, Prepare (before the queue pair goes to RTR),
// Run on a goroutine of its own, Stop together with the queue pair's SetError.
// Run then drains what was posted and returns; the last window says why.
//
// Nothing on the way of a frame allocates, takes a lock or logs. Time is read
// once a poll, not once a message.
package receive
