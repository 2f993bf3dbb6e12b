// Package scripted is a verbs provider without hardware or network: a test says
// which receives complete, how and when, and which call fails.
//
// It keeps the rules of a real device where a caller could break them (states,
// completion queue depth, order of closing) and records what was created and
// closed in which order. Completions come from the test ([QueuePair.Deliver],
// [QueuePair.Fail], [CompletionQueue.Push]) or, for benchmarks, from a
// [Generator] that completes whatever is posted as fast as it is polled,
// without allocating.
//
// All methods may be called from any goroutine. A mutex a completion queue does
// that; it is taken once a batch, not once a message.
package scripted
