// Package double is a libibverbs without a kernel: devices made of the real
// structures of <infiniband/verbs.h>, whose data path does what a device's must
// (completions of 64 bytes in a ring with an owner bit, receive descriptors in
// network order, doorbell records), and whose control calls keep the kernel's
// rules and fail where a test says so. The test plays the hardware.
//
// It is one world a process: a test calls Reset first. It is built with the tag
// ibverbs, and only tests import it.
package double
