//go:build linux && cgo && ibverbs

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	// Most receives a call of the library; Go posts no more than 256 at once
	// (receive.MaxBatch).
	batch = 256,
	// Acknowledging a completion event takes a lock, so it is done rarely.
	ack_every = 64,
};

// Those that verbs.h makes macros of.
static struct ibv_device **real_get_device_list(int *n) { return ibv_get_device_list(n); }
static int real_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a) { return ibv_query_port(c, port, a); }
static ssize_t real_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags) { return ibv_query_gid_table(c, e, max, flags); }
static struct ibv_mr *real_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) { return ibv_reg_mr(pd, addr, length, access); }

// CONTROLS(F) is F(name, function) for all control calls.
#define CONTROLS(F) \
	F(fork_init, ibv_fork_init) \
	F(get_device_list, real_get_device_list) \
	F(free_device_list, ibv_free_device_list) \
	F(open_device, ibv_open_device) \
	F(close_device, ibv_close_device) \
	F(query_device, ibv_query_device) \
	F(query_port, real_query_port) \
	F(query_gid_table, real_query_gid_table) \
	F(get_async_event, ibv_get_async_event) \
	F(ack_async_event, ibv_ack_async_event) \
	F(alloc_pd, ibv_alloc_pd) \
	F(dealloc_pd, ibv_dealloc_pd) \
	F(reg_mr, real_reg_mr) \
	F(dereg_mr, ibv_dereg_mr) \
	F(create_comp_channel, ibv_create_comp_channel) \
	F(destroy_comp_channel, ibv_destroy_comp_channel) \
	F(create_cq, ibv_create_cq) \
	F(destroy_cq, ibv_destroy_cq) \
	F(get_cq_event, ibv_get_cq_event) \
	F(ack_cq_events, ibv_ack_cq_events) \
	F(create_qp, ibv_create_qp) \
	F(modify_qp, ibv_modify_qp) \
	F(query_qp, ibv_query_qp) \
	F(destroy_qp, ibv_destroy_qp) \
	F(create_srq, ibv_create_srq) \
	F(modify_srq, ibv_modify_srq) \
	F(destroy_srq, ibv_destroy_srq)

struct rl_library {
#define FIELD(name, function) __typeof__(function) *name;
	CONTROLS(FIELD)
};

struct rl_device {
	const struct rl_library *lib;
	struct ibv_context *context;
	int gone; // fatal error or removal
};

struct rl_cq {
	struct rl_device *device;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	uint64_t id;
	int wake_fd;
	unsigned unacked; // the poller's
	int overrun;
};

// rl_chain is what a batch of receives is posted in.
struct rl_chain {
	int length;              // how many of the following there are
	struct ibv_recv_wr *wrs; // linked but for the last
};

struct rl_qp {
	struct rl_device *device;
	struct ibv_qp *qp;
	struct rl_chain chain; // empty with a shared receive queue
};

struct rl_srq {
	struct rl_device *device;
	struct ibv_srq *srq;
	struct rl_chain chain;
};

// failure is a negative errno for a call that failed. Some drivers return it,
// some set errno.
static int failure(int rc)
{
	int e = rc > 0 ? rc : rc < -1 ? -rc : errno;
	return e > 0 ? -e : -EIO;
}

static int enter(struct rl_guard *g)
{
	// The exchange orders the two: either the closer sees the call, or the
	// call sees the closer.
	__atomic_exchange_n(&g->in, 1, __ATOMIC_SEQ_CST);
	uint32_t shut = __atomic_load_n(&g->shut, __ATOMIC_SEQ_CST);
	if (__builtin_expect(shut, 0)) {
		__atomic_store_n(&g->in, 0, __ATOMIC_RELEASE);
		return shut == rl_closed ? -EBADF : -ENOTCONN;
	}
	return 0;
}

static void leave(struct rl_guard *g) { __atomic_store_n(&g->in, 0, __ATOMIC_RELEASE); }

struct rl_library *rl_library_new(void)
{
	struct rl_library *lib = malloc(sizeof *lib);
	if (!lib)
		return NULL;
#define SET(field, function) lib->field = function;
	CONTROLS(SET)
	return lib;
}

void rl_library_free(struct rl_library *lib) { free(lib); }

int rl_library_set(struct rl_library *lib, const char *name, void *function)
{
#define REPLACE(field, unused) \
	if (!strcmp(name, #field)) { \
		lib->field = (__typeof__(lib->field))function; \
		return 0; \
	}
	CONTROLS(REPLACE)
	return -ENOENT;
}

// rl_fork_init has huge pages covered too: kernels that copy pinned pages on
// fork (5.12) need neither, and libibverbs then does nothing.
int rl_fork_init(struct rl_library *lib)
{
	setenv("RDMAV_HUGEPAGES_SAFE", "1", 0);
	int rc = lib->fork_init();
	return rc ? failure(rc) : 0;
}

static void copy_name(char *to, const char *from)
{
	memcpy(to, from, IBV_SYSFS_NAME_MAX);
	to[IBV_SYSFS_NAME_MAX - 1] = 0;
}

int rl_list(struct rl_library *lib, struct rl_name *names, int max)
{
	int n = 0;
	errno = 0;
	struct ibv_device **list = lib->get_device_list(&n);
	if (!list)
		return failure(0);
	for (int i = 0; i < n && i < max; i++) {
		copy_name(names[i].name, list[i]->name);
		copy_name(names[i].uverbs, list[i]->dev_name);
	}
	lib->free_device_list(list);
	return n;
}

int rl_open(struct rl_library *lib, const char *name, struct rl_device **out)
{
	struct rl_device *d = calloc(1, sizeof *d);
	if (!d)
		return -ENOMEM;
	d->lib = lib;
	int n = 0, rc = -ENODEV;
	errno = 0;
	struct ibv_device **list = lib->get_device_list(&n);
	if (!list) {
		rc = failure(0);
		free(d);
		return rc;
	}
	for (int i = 0; i < n; i++) {
		if (strcmp(list[i]->name, name))
			continue;
		errno = 0;
		d->context = lib->open_device(list[i]);
		rc = d->context ? 0 : failure(0);
		break;
	}
	lib->free_device_list(list);
	if (!rc) {
		int flags = fcntl(d->context->async_fd, F_GETFL);
		if (flags < 0 || fcntl(d->context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
			rc = -errno;
			lib->close_device(d->context);
		}
	}
	if (rc) {
		free(d);
		return rc;
	}
	*out = d;
	return 0;
}

int rl_close(struct rl_device *d)
{
	errno = 0;
	int rc = d->lib->close_device(d->context);
	if (rc)
		return failure(rc);
	free(d);
	return 0;
}

int rl_vectors(struct rl_device *d) { return d->context->num_comp_vectors; }

int rl_query_device(struct rl_device *d, struct ibv_device_attr *a)
{
	errno = 0;
	int rc = d->lib->query_device(d->context, a);
	return rc ? failure(rc) : 0;
}

int rl_query_port(struct rl_device *d, int port, struct ibv_port_attr *a)
{
	errno = 0;
	int rc = d->lib->query_port(d->context, (uint8_t)port, a);
	return rc ? failure(rc) : 0;
}

int rl_query_gids(struct rl_device *d, struct ibv_gid_entry *e, int max)
{
	// This one says a negative errno, never -1 for errno.
	return (int)d->lib->query_gid_table(d->context, e, (size_t)max, 0);
}

void rl_lost(struct rl_device *d) { __atomic_store_n(&d->gone, 1, __ATOMIC_RELEASE); }

int rl_next_event(struct rl_device *d, int stop_fd, int timeout_ms, struct rl_event *out)
{
	struct pollfd p[2] = {{.fd = stop_fd, .events = POLLIN}, {.fd = d->context->async_fd, .events = POLLIN}};
	for (;;) {
		int n = poll(p, 2, timeout_ms);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (!n)
			return 2;
		if (p[0].revents)
			return 0;
		struct ibv_async_event e = {0};
		errno = 0;
		int rc = d->lib->get_async_event(d->context, &e);
		if (rc) {
			if (!(p[1].revents & (POLLERR | POLLHUP | POLLNVAL)) && (errno == EAGAIN || errno == EINTR))
				continue;
			__atomic_store_n(&d->gone, 1, __ATOMIC_RELEASE);
			return -ENODEV;
		}
		*out = (struct rl_event){.type = e.event_type};
		// The object is not destroyed before its event is acknowledged.
		switch (e.event_type) {
		case IBV_EVENT_CQ_ERR: {
			struct rl_cq *cq = e.element.cq->cq_context;
			__atomic_store_n(&cq->overrun, 1, __ATOMIC_RELEASE);
			out->cq = cq->id;
			break;
		}
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_PATH_MIG_ERR:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
			out->qpn = e.element.qp->qp_num;
			break;
		case IBV_EVENT_DEVICE_FATAL:
			__atomic_store_n(&d->gone, 1, __ATOMIC_RELEASE);
			break;
		case IBV_EVENT_PORT_ACTIVE:
		case IBV_EVENT_PORT_ERR:
		case IBV_EVENT_GID_CHANGE:
			out->port = (uint32_t)e.element.port_num;
			break;
		default:
			break;
		}
		d->lib->ack_async_event(&e);
		return 1;
	}
}

int rl_alloc_pd(struct rl_device *d, struct ibv_pd **out)
{
	errno = 0;
	*out = d->lib->alloc_pd(d->context);
	return *out ? 0 : failure(0);
}

int rl_dealloc_pd(struct rl_device *d, struct ibv_pd *pd)
{
	errno = 0;
	int rc = d->lib->dealloc_pd(pd);
	return rc ? failure(rc) : 0;
}

int rl_reg_mr(struct rl_device *d, struct ibv_pd *pd, uint64_t address, uint64_t length, int access, struct ibv_mr **out)
{
	errno = 0;
	*out = d->lib->reg_mr(pd, (void *)(uintptr_t)address, (size_t)length, access);
	return *out ? 0 : failure(0);
}

int rl_dereg_mr(struct rl_device *d, struct ibv_mr *mr)
{
	errno = 0;
	int rc = d->lib->dereg_mr(mr);
	return rc ? failure(rc) : 0;
}

int rl_create_cq(struct rl_device *d, int depth, int vector, uint64_t id, int wake_fd, struct rl_cq **out)
{
	int rc = -ENOMEM;
	struct rl_cq *cq = aligned_alloc(64, (sizeof *cq + 63) & ~(size_t)63);
	if (!cq)
		return rc;
	memset(cq, 0, sizeof *cq);
	cq->device = d;
	cq->id = id;
	cq->wake_fd = wake_fd;
	errno = 0;
	cq->channel = d->lib->create_comp_channel(d->context);
	if (!cq->channel) {
		rc = failure(0);
		goto no_channel;
	}
	int flags = fcntl(cq->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(cq->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		rc = -errno;
		goto no_cq;
	}
	errno = 0;
	cq->cq = d->lib->create_cq(d->context, depth, cq, cq->channel, vector);
	if (!cq->cq) {
		rc = failure(0);
		goto no_cq;
	}
	*out = cq;
	return 0;
no_cq:
	d->lib->destroy_comp_channel(cq->channel);
no_channel:
	free(cq);
	return rc;
}

static void ack(struct rl_cq *cq)
{
	if (cq->unacked)
		cq->device->lib->ack_cq_events(cq->cq, cq->unacked);
	cq->unacked = 0;
}

// rl_destroy_cq acknowledges first: the library waits for that.
int rl_destroy_cq(struct rl_cq *cq)
{
	const struct rl_library *lib = cq->device->lib;
	if (cq->cq) {
		ack(cq);
		errno = 0;
		int rc = lib->destroy_cq(cq->cq);
		if (rc)
			return failure(rc);
		cq->cq = NULL;
	}
	errno = 0;
	int rc = lib->destroy_comp_channel(cq->channel);
	if (rc)
		return failure(rc);
	free(cq);
	return 0;
}

// take_events takes all notifications there are and returns how many.
static int take_events(struct rl_cq *cq)
{
	struct ibv_cq *which;
	void *context;
	for (int n = 0;; n++) {
		errno = 0;
		if (cq->device->lib->get_cq_event(cq->channel, &which, &context)) {
			if (errno == EINTR) {
				n--;
				continue;
			}
			return errno == EAGAIN || errno == EWOULDBLOCK || n ? n : failure(0);
		}
		if (++cq->unacked >= ack_every)
			ack(cq);
	}
}

int rl_arm(struct rl_guard *g, struct rl_cq *cq)
{
	int rc = enter(g);
	if (rc)
		return rc;
	// A notification nobody waited for is of a completion before this call.
	rc = take_events(cq);
	if (rc >= 0) {
		errno = 0;
		rc = ibv_req_notify_cq(cq->cq, 0);
		if (rc)
			rc = failure(rc);
	}
	if (rc < 0 && __atomic_load_n(&cq->device->gone, __ATOMIC_ACQUIRE))
		rc = -ENODEV;
	leave(g);
	return rc;
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int rl_wait(struct rl_guard *g, struct rl_cq *cq, int64_t timeout_ns)
{
	int rc = enter(g);
	if (rc)
		return rc;
	int64_t end = timeout_ns >= 0 ? now() + timeout_ns : 0;
	struct pollfd p[2] = {{.fd = cq->channel->fd, .events = POLLIN}, {.fd = cq->wake_fd, .events = POLLIN}};
	for (;;) {
		int64_t left = timeout_ns < 0 ? 0 : end - now();
		if (left < 0)
			left = 0;
		struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
		int n = ppoll(p, 2, timeout_ns < 0 ? NULL : &t, NULL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = -errno;
			break;
		}
		if (p[1].revents & POLLIN) {
			uint64_t count;
			if (read(cq->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
				rc = -errno;
		}
		if (p[0].revents) {
			rc = take_events(cq);
			if (!rc && p[0].revents & (POLLERR | POLLHUP | POLLNVAL))
				rc = -EIO;
			else if (!rc && !p[1].revents)
				continue;
			else if (rc > 0)
				rc = 1;
		}
		break;
	}
	if (rc < 0 && __atomic_load_n(&cq->device->gone, __ATOMIC_ACQUIRE))
		rc = -ENODEV;
	leave(g);
	return rc;
}

#define SAME_PLACE(mine, theirs) \
	_Static_assert(offsetof(struct rl_wc, mine) == offsetof(struct ibv_wc, theirs), #theirs); \
	_Static_assert(sizeof(((struct rl_wc *)0)->mine) == sizeof(((struct ibv_wc *)0)->theirs), #theirs)
SAME_PLACE(id, wr_id);
SAME_PLACE(status, status);
SAME_PLACE(opcode, opcode);
SAME_PLACE(vendor_error, vendor_err);
SAME_PLACE(byte_len, byte_len);
SAME_PLACE(imm, imm_data);
SAME_PLACE(qpn, qp_num);
SAME_PLACE(src_qp, src_qp);
SAME_PLACE(flags, wc_flags);
_Static_assert(sizeof(struct rl_wc) == sizeof(struct ibv_wc), "struct ibv_wc");

static inline int poll_cq(struct rl_guard *g, struct rl_cq *cq, struct rl_wc *out, int n, int looks)
{
	int rc = enter(g);
	if (rc)
		return rc;
	// These first: what was completed before them is in the queue by then.
	int overrun = __atomic_load_n(&cq->overrun, __ATOMIC_ACQUIRE);
	int gone = __atomic_load_n(&cq->device->gone, __ATOMIC_ACQUIRE);
	do {
		errno = 0;
		rc = ibv_poll_cq(cq->cq, n, (struct ibv_wc *)out);
	} while (!rc && --looks > 0);
	if (rc < 0) {
		rc = gone ? -ENODEV : overrun ? -EOVERFLOW : failure(rc);
	} else if (!rc) {
		rc = gone ? -ENODEV : overrun ? -EOVERFLOW : 0;
	}
	leave(g);
	return rc;
}

int64_t rl_poll(struct rl_guard *g, struct rl_cq *cq, struct rl_wc *out, int n, int looks)
{
	return poll_cq(g, cq, out, n, looks);
}

static void chain_free(struct rl_chain *c)
{
	free(c->wrs);
}

static int chain_make(struct rl_chain *c, int receives)
{
	c->length = receives < batch ? receives : batch;
	c->wrs = calloc((size_t)c->length, sizeof *c->wrs);
	if (!c->wrs)
		return -ENOMEM;
	for (int i = 0; i < c->length; i++) {
		c->wrs[i].next = i + 1 < c->length ? &c->wrs[i + 1] : NULL;
	}
	return 0;
}

int rl_create_srq(struct rl_device *d, struct ibv_pd *pd, int receives, struct rl_srq **out)
{
	struct rl_srq *srq = calloc(1, sizeof *srq);
	if (!srq)
		return -ENOMEM;
	srq->device = d;
	int rc = chain_make(&srq->chain, receives);
	if (rc) {
		free(srq);
		return rc;
	}
	struct ibv_srq_init_attr a = {.srq_context = srq, .attr = {.max_wr = (uint32_t)receives, .max_sge = 1}};
	errno = 0;
	srq->srq = d->lib->create_srq(pd, &a);
	if (!srq->srq) {
		rc = failure(0);
		chain_free(&srq->chain);
		free(srq);
		return rc;
	}
	*out = srq;
	return 0;
}

int rl_limit_srq(struct rl_srq *srq, int below)
{
	struct ibv_srq_attr a = {.srq_limit = (uint32_t)below};
	errno = 0;
	int rc = srq->device->lib->modify_srq(srq->srq, &a, IBV_SRQ_LIMIT);
	return rc ? failure(rc) : 0;
}

int rl_destroy_srq(struct rl_srq *srq)
{
	errno = 0;
	int rc = srq->device->lib->destroy_srq(srq->srq);
	if (rc)
		return failure(rc);
	chain_free(&srq->chain);
	free(srq);
	return 0;
}

int rl_create_qp(struct rl_device *d, struct ibv_pd *pd, struct rl_cq *send, struct rl_cq *receive, int sends, int receives, struct rl_srq *srq, struct rl_qp **out)
{
	struct rl_qp *qp = calloc(1, sizeof *qp);
	if (!qp)
		return -ENOMEM;
	qp->device = d;
	int rc = srq ? 0 : chain_make(&qp->chain, receives);
	if (rc) {
		free(qp);
		return rc;
	}
	struct ibv_qp_init_attr a = {
		.qp_context = qp,
		.send_cq = send->cq,
		.recv_cq = receive->cq,
		.srq = srq ? srq->srq : NULL,
		.cap = {
			.max_send_wr = (uint32_t)sends,
			.max_recv_wr = srq ? 0 : (uint32_t)receives,
			.max_send_sge = 1,
			.max_recv_sge = srq ? 0 : 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	errno = 0;
	qp->qp = d->lib->create_qp(pd, &a);
	if (qp->qp) {
		*out = qp;
		return 0;
	}
	rc = failure(0);
	chain_free(&qp->chain);
	free(qp);
	return rc;
}

uint32_t rl_qpn(struct rl_qp *qp) { return qp->qp->qp_num; }

void *rl_raw(struct rl_qp *qp) { return qp->qp; }

int rl_modify_qp(struct rl_qp *qp, struct ibv_qp_attr *a, int mask)
{
	errno = 0;
	int rc = qp->device->lib->modify_qp(qp->qp, a, mask);
	return rc ? failure(rc) : 0;
}

int rl_query_qp(struct rl_qp *qp)
{
	struct ibv_qp_attr a = {0};
	struct ibv_qp_init_attr unused;
	errno = 0;
	int rc = qp->device->lib->query_qp(qp->qp, &a, IBV_QP_STATE, &unused);
	return rc ? failure(rc) : (int)a.qp_state;
}

int rl_destroy_qp(struct rl_qp *qp)
{
	errno = 0;
	int rc = qp->device->lib->destroy_qp(qp->qp);
	if (rc)
		return failure(rc);
	chain_free(&qp->chain);
	free(qp);
	return 0;
}

// What follows the number in a receive is a struct ibv_sge, which need not be
// copied.
#define SAME_SGE(mine, theirs) \
	_Static_assert(offsetof(struct rl_receive, mine) - offsetof(struct rl_receive, address) == offsetof(struct ibv_sge, theirs), #theirs); \
	_Static_assert(sizeof(((struct rl_receive *)0)->mine) == sizeof(((struct ibv_sge *)0)->theirs), #theirs)
SAME_SGE(address, addr);
SAME_SGE(length, length);
SAME_SGE(lkey, lkey);

// describe makes work requests of receives, which they point to until they are
// posted.
static void describe(struct ibv_recv_wr *restrict wrs, const struct rl_receive *restrict in, int n)
{
	for (int i = 0; i < n; i++) {
		wrs[i].wr_id = in[i].id;
		wrs[i].sg_list = (struct ibv_sge *)&in[i].address;
		// A length of 0 in an sge means 2^31 to some devices.
		wrs[i].num_sge = in[i].length > 0;
	}
}

// post posts on a queue pair or, if that is NULL, on a shared queue.
static inline int64_t post(struct rl_guard *g, struct rl_chain *c, struct ibv_qp *qp, struct ibv_srq *srq, const struct rl_receive *in, int n)
{
	int rc = enter(g);
	if (rc)
		return (int64_t)-rc << 32;
	struct ibv_recv_wr *wrs = c->wrs;
	int done = 0;
	while (done < n) {
		int k = n - done < c->length ? n - done : c->length;
		describe(wrs, in + done, k);
		struct ibv_recv_wr *bad = NULL;
		wrs[k - 1].next = NULL;
		errno = 0;
		rc = qp ? ibv_post_recv(qp, wrs, &bad) : ibv_post_srq_recv(srq, wrs, &bad);
		if (k < c->length)
			wrs[k - 1].next = &wrs[k];
		if (__builtin_expect(rc != 0, 0)) {
			ptrdiff_t taken = bad ? bad - wrs : 0;
			done += taken >= 0 && taken < k ? (int)taken : 0;
			rc = -failure(rc);
			break;
		}
		done += k;
	}
	leave(g);
	return (int64_t)rc << 32 | done;
}

int64_t rl_post(struct rl_guard *g, struct rl_qp *qp, const struct rl_receive *in, int n)
{
	return post(g, &qp->chain, qp->qp, NULL, in, n);
}

int64_t rl_post_srq(struct rl_guard *g, struct rl_srq *srq, const struct rl_receive *in, int n)
{
	return post(g, &srq->chain, NULL, srq->srq, in, n);
}

int64_t rl_post_poll(struct rl_guard *pg, struct rl_qp *qp, struct rl_srq *srq, const struct rl_receive *in, int k,
	struct rl_guard *g, struct rl_cq *cq, struct rl_wc *out, int n, int looks)
{
	uint64_t posted = (uint64_t)(qp ? rl_post(pg, qp, in, k) : rl_post_srq(pg, srq, in, k));
	uint64_t found = (uint32_t)poll_cq(g, cq, out, n, looks);
	return (int64_t)(posted >> 32 << 48 | (posted & 0xFFFF) << 32 | found);
}
