// Package remote runs programs in another machine over one byte stream, as
// os/exec does in this one: a Server stands where the programs run, a Client
// where their input and output are wanted.
//
// The stream carries JSON objects, one a line. Each program has a number that
// the client chose; what belongs to it in either direction carries that number.
// A program that outlives its time limit is killed by the server, and all
// programs are killed when the stream ends: nothing runs on unseen.
//
// A Client can also open a TCP connection to an address that only the server
// reaches: the server dials both ends and copies between them.
package remote
