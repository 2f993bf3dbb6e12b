// Package session is what a test and the lab's programs in the guest say to
// each other: JSON objects on standard input and output, one a line. It takes
// the place of NATS there, so that a case needs nothing but the two ends of a
// connection.
//
// Host is the agent's side of a stream: Open, Peer, any number of Look, Close.
// cmd/guest-receive is a Host in the guest; tests use one here, too.
// cmd/guest-request posts what it is told: Peer, then any number of Work.
package session
