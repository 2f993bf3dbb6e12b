// Package ibverbs is the verbs provider over libibverbs: RDMA NICs and, in the
// lab, the kernel's rdma_rxe.
//
// It needs Linux, cgo, the headers of libibverbs and the build tag ibverbs.
// Without them the package builds all the same: Available is false, and Open
// says what is missing.
//
// # Names
//
// A device is named by its RDMA name (mlx5_0), by an address that it has
// (192.0.2.7), by a subnet that it has an address in (192.0.2.0/24), or by both
// (mlx5_0@192.0.2.7). The empty name and "auto" are the first device with an
// active port and a usable address.
//
// # Addresses
//
// Of the port's GID table only entries of type RoCE v2 count whose address the
// entry's netdev has; IPv4 goes before global IPv6 before link-local. The
// address, once chosen, is kept as long as the table has it, and then followed
// by one of the same family and scope, or by none until one comes; its index is
// looked up anew for each connection, because a flap of the link moves it.
//
// # Threads
//
// A poll or a post is one call of C for a batch, which allocates nothing and
// takes no lock of this package (the driver's own lock a call remains). A guard
// of one atomic exchange a call makes sure that what is closed meanwhile is not
// used any more. One goroutine a device waits for asynchronous events.
//
// # Fork
//
// ibv_fork_init is called before the first device is opened, rather than
// MADV_DONTFORK on the regions: it covers the queues that the driver allocates
// too, and on kernels that copy pinned pages at fork (5.12) it costs nothing.
// Programs started by os/exec share the address space until they exec and need
// neither.
package ibverbs

// Config shapes the provider. The zero value is a good default.
type Config struct {
	// Looks is how often one Poll looks for the first completion before it
	// returns with none; it makes an idle poll cheap, for a call of C costs
	// more than a look. 0 is DefaultLooks, negative is one.
	Looks int
}

// DefaultLooks is less than half a microsecond on the devices known.
const DefaultLooks = 32
