// A libibverbs without a kernel: see package double.
#ifndef ROCELINK_DOUBLE_H
#define ROCELINK_DOUBLE_H

#include <infiniband/verbs.h>
#include <stdint.h>

enum { dbl_gids = 64, dbl_devices = 4 };

struct dbl_device {
	char name[IBV_SYSFS_NAME_MAX];
	char uverbs[IBV_SYSFS_NAME_MAX];
	struct ibv_port_attr port;
	struct ibv_device_attr limits;
	struct ibv_gid_entry gids[dbl_gids];
	int gid_count;
};

// dbl_modify is one call of ibv_modify_qp.
struct dbl_modify {
	struct ibv_qp_attr attr;
	int mask;
	uint32_t qpn;
};

// dbl_message is what the peer sends to a queue pair.
struct dbl_message {
	int write;         // RDMA WRITE with immediate instead of SEND
	int with_imm;
	uint32_t imm;
	uint64_t address;  // of a WRITE
	uint32_t rkey;
	const void *data;
	uint32_t length;
	int silent_length; // the completion says 0, as some devices do for a WRITE
};

void dbl_reset(void);
int dbl_add(const struct dbl_device *);
void *dbl_function(const char *name);
// dbl_fail has a call fail `times` times (negative: always) after `after`
// successes. With errnum 0 it fails no more.
int dbl_fail(const char *call, int errnum, int after, int times);
int dbl_calls(char *to, int size, int from); // names, each with a newline
int dbl_live(char *to, int size);            // what is open, by name
int dbl_modified(struct dbl_modify *to, int max);
int dbl_hangs(void); // destructions that would have waited for ever
int dbl_created(struct ibv_qp_init_attr *); // of the last queue pair
void dbl_set_port(int device, const struct ibv_port_attr *);
void dbl_set_gids(int device, const struct ibv_gid_entry *, int n);
int dbl_access(uint32_t rkey); // access flags that a region was registered with

// The hardware's side. They return 0 or a negative errno: -EAGAIN is receiver
// not ready, -ENOTCONN a queue pair that does not receive.
int dbl_emit(int device, int type, uint32_t port, uint32_t qpn);
int dbl_remove(int device);
int dbl_deliver(uint32_t qpn, const struct dbl_message *);
// dbl_fault completes the next receive with an error and brings the queue pair
// to error, as a device does that finds a fault by itself.
int dbl_fault(uint32_t qpn, int status, uint32_t vendor);
// dbl_complete adds any completion at all; a receive is consumed only if asked.
int dbl_complete(uint32_t qpn, uint64_t id, int status, int opcode, int flags, uint32_t imm, uint32_t length, uint32_t vendor);
int dbl_posted(uint32_t qpn); // receives that the hardware has
// dbl_descriptor reads back the i-th receive that the hardware has.
int dbl_descriptor(uint32_t qpn, int i, uint64_t *address, uint32_t *length, uint32_t *lkey);
// dbl_generate has a peer use each receive at once.
int dbl_generate(uint32_t qpn, int opcode, int flags, uint32_t length, int on);
int dbl_unacked(uint32_t qpn); // completion events that are not acknowledged

// The receive loop in C, over the same entry points, for comparison.
int64_t dbl_loop(uint32_t qpn, uint64_t base, uint32_t stride, uint32_t slots, uint32_t lkey, int batch, int64_t messages);
int64_t dbl_empty(uint32_t qpn, int64_t polls);

// The loopback peer of the tests on a real device.
int dbl_send(void *qp, int opcode, uint64_t local, uint32_t length, uint32_t lkey, uint64_t remote, uint32_t rkey, uint32_t imm, uint64_t id);

#endif
