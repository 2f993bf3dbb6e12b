// The C side of the provider: control calls through a table, so that a test
// can put a library without a kernel in its place, and the data path, one call
// a batch.
//
// Functions that return int or int64_t return a negative errno on failure.
#ifndef ROCELINK_SHIM_H
#define ROCELINK_SHIM_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct rl_library;
struct rl_device;
struct rl_cq;
struct rl_qp;
struct rl_srq;

// rl_guard keeps an object from being destroyed while a call on it is under
// way. It lives in the Go object, so that it outlives what it guards.
struct rl_guard {
	uint32_t in;   // a call is under way
	uint32_t shut; // no call may begin, and why: see the following
};

enum {
	rl_closed = 1, // -EBADF
	rl_failed = 2, // -ENOTCONN: the queue pair is in error
};

// rl_wc has the layout of verbs.WorkCompletion, which is that of struct ibv_wc.
// It exists because Go cannot name members of an anonymous union.
struct rl_wc {
	uint64_t id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_error;
	uint32_t byte_len;
	uint32_t imm; // big-endian
	uint32_t qpn;
	uint32_t src_qp;
	uint32_t flags;
	uint16_t rest[4];
};

// rl_receive has the layout of verbs.ReceiveRequest.
struct rl_receive {
	uint64_t id;
	uint64_t address;
	uint32_t length;
	uint32_t lkey;
};

// rl_name is a device as libibverbs lists it.
struct rl_name {
	char name[IBV_SYSFS_NAME_MAX];   // mlx5_0
	char uverbs[IBV_SYSFS_NAME_MAX]; // uverbs0
};

// rl_event is an asynchronous event. qpn or cq is set if it is affiliated.
struct rl_event {
	int type; // enum ibv_event_type
	uint32_t port;
	uint32_t qpn;
	uint64_t cq; // what rl_create_cq was given
};

struct rl_library *rl_library_new(void);
void rl_library_free(struct rl_library *);
// rl_library_set puts another function in; the name is without ibv_.
int rl_library_set(struct rl_library *, const char *name, void *function);

int rl_fork_init(struct rl_library *);
// rl_list returns how many devices there are, of which it names up to max.
int rl_list(struct rl_library *, struct rl_name *names, int max);
int rl_open(struct rl_library *, const char *name, struct rl_device **);
int rl_close(struct rl_device *);
int rl_vectors(struct rl_device *);
int rl_query_device(struct rl_device *, struct ibv_device_attr *);
int rl_query_port(struct rl_device *, int port, struct ibv_port_attr *);
// rl_query_gids returns how many valid entries it wrote.
int rl_query_gids(struct rl_device *, struct ibv_gid_entry *, int max);
// rl_next_event waits for an event: 1, or 0 when stop_fd becomes readable, or 2
// when timeout_ms have passed without either.
int rl_next_event(struct rl_device *, int stop_fd, int timeout_ms, struct rl_event *);
// rl_lost notes that the device is gone.
void rl_lost(struct rl_device *);

int rl_alloc_pd(struct rl_device *, struct ibv_pd **);
int rl_dealloc_pd(struct rl_device *, struct ibv_pd *);
int rl_reg_mr(struct rl_device *, struct ibv_pd *, uint64_t address, uint64_t length, int access, struct ibv_mr **);
int rl_dereg_mr(struct rl_device *, struct ibv_mr *);

int rl_create_cq(struct rl_device *, int depth, int vector, uint64_t id, int wake_fd, struct rl_cq **);
int rl_destroy_cq(struct rl_cq *);
int rl_arm(struct rl_guard *, struct rl_cq *);
// rl_wait returns 1 for a notification, 0 for wake_fd or the end of the time.
int rl_wait(struct rl_guard *, struct rl_cq *, int64_t timeout_ns);
// rl_poll returns how many completions it wrote. It looks up to `looks` times
// for the first one. What it returns when there is none any more: -EOVERFLOW
// after an overrun, -ENODEV after the device is gone.
int64_t rl_poll(struct rl_guard *, struct rl_cq *, struct rl_wc *, int n, int looks);

int rl_create_srq(struct rl_device *, struct ibv_pd *, int receives, struct rl_srq **);
int rl_limit_srq(struct rl_srq *, int below);
int rl_destroy_srq(struct rl_srq *);

// rl_create_qp makes a queue pair with a receive queue of its own if there is
// no shared one.
int rl_create_qp(struct rl_device *, struct ibv_pd *, struct rl_cq *send, struct rl_cq *receive, int sends, int receives, struct rl_srq *, struct rl_qp **);
uint32_t rl_qpn(struct rl_qp *);
void *rl_raw(struct rl_qp *); // the struct ibv_qp
int rl_modify_qp(struct rl_qp *, struct ibv_qp_attr *, int mask);
int rl_query_qp(struct rl_qp *); // enum ibv_qp_state
int rl_destroy_qp(struct rl_qp *);
// rl_post returns how many receives were taken, and in the upper half the errno
// that kept the next one from it.
int64_t rl_post(struct rl_guard *, struct rl_qp *, const struct rl_receive *, int n);
int64_t rl_post_srq(struct rl_guard *, struct rl_srq *, const struct rl_receive *, int n);
// rl_post_poll posts k < 65536 receives on the one that is not NULL, then polls.
// It returns, from above, an errno and how many were posted in 16 bits each, and
// what rl_poll returns in 32.
int64_t rl_post_poll(struct rl_guard *, struct rl_qp *, struct rl_srq *, const struct rl_receive *, int k,
	struct rl_guard *, struct rl_cq *, struct rl_wc *, int n, int looks);

#endif
