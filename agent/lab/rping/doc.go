// Package rping speaks the application protocol of rping (rdma-core), either
// part of it, over a connection that somebody else makes.
//
// A ping is four messages and two transfers: the client names a buffer that holds
// the text, the server READs it and says go; the client names another, the server
// WRITEs the text there and says go. The client then compares. Neither part says
// how many pings there will be: the server goes on until the client hangs up.
package rping
