// Package cm connects a queue pair of the agent's verbs to a program that speaks
// the RDMA connection manager (librdmacm), from either side. The manager says what
// the peer's attributes are; the queue pair stays its owner's, who moves it from
// state to state.
//
// It needs Linux, cgo, the headers of librdmacm, and the build tags ibverbs and
// rdmacm. A connection belongs to one process of one host, and is IPv4's.
package cm
