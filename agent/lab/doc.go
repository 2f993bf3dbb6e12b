// Package lab boots a small virtual machine with a distribution's kernel and
// runs programs in it: it is how the project meets the kernel's own RDMA device,
// rdma_rxe, and the programs of others that use it.
//
// An Image is the initramfs: our init, kernel modules in the order they load,
// programs with their shared libraries. A Machine is one run of QEMU without
// hardware acceleration: bounded in time, ended with the process that started
// it. Programs run in the guest through package remote, as os/exec would run
// them here. A Wire is an Ethernet cable from a port of the guest to this
// process: frames, no interface and no privileges on this side.
//
// The cases are tests with build tag lab; .ci/lab gets what they need.
package lab
