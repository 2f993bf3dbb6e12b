//go:build linux && cgo && ibverbs

#define _GNU_SOURCE
#include "double.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A completion as the hardware writes it. The owner bit is written last and
// alternates from lap to lap.
struct cqe {
	uint64_t id; // if has_id
	uint32_t imm; // big-endian from here on
	uint32_t byte_count;
	uint32_t qpn;
	uint32_t vendor;
	uint16_t counter;
	uint8_t opcode;
	uint8_t flags;
	uint8_t syndrome;
	uint8_t has_id;
	uint8_t pad[33];
	uint8_t owner;
};
_Static_assert(sizeof(struct cqe) == 64, "completion of 64 bytes");

// A receive descriptor as the hardware reads it, big-endian.
struct descriptor {
	uint32_t length;
	uint32_t lkey;
	uint64_t address;
};

struct world_device {
	struct dbl_device conf;
	struct ibv_device dev;
	int removed;
	struct device_context *open;
};

struct device_context {
	struct verbs_context v; // its last member is the ibv_context
	struct world_device *of;
	int async_write;                    // a byte for each event
	struct ibv_async_event pending[64]; // as the kernel keeps them until they are read
	int first, last;
	int cqs, qps, pds, mrs, channels, srqs;
};

struct hw_cq {
	struct ibv_cq ibv;
	struct device_context *dc;
	int users;
	unsigned comp_events, async_events; // handed out
	struct cqe *ring;
	uint32_t size; // power of two
	uint32_t log;
	char spin;
	_Alignas(64) uint32_t consumer; // the poller's
	uint32_t doorbell;              // its published copy
	struct hw_qp *last;
	_Alignas(64) uint32_t producer; // the hardware's
	uint32_t armed;
	int overrun;
	int event_write;
	pthread_mutex_t hw;
};

// hw_rq is a receive queue.
struct hw_rq {
	struct descriptor *ring;
	uint64_t *ids;
	uint32_t size, max;
	char spin;
	_Alignas(64) uint32_t head; // the poster's
	uint32_t doorbell;          // big-endian
	uint32_t tail;              // completed
	_Alignas(64) uint32_t used; // the hardware's
};

// hw_srq is a shared receive queue. Its queue pairs complete on one queue here,
// so that receives are free again in order.
struct hw_srq {
	struct ibv_srq ibv;
	struct device_context *dc;
	unsigned async_events;
	struct hw_rq rq;
	uint32_t limit;
	struct ibv_cq *cq;
	int users;
};

struct hw_qp {
	struct ibv_qp ibv;
	struct device_context *dc;
	struct hw_qp *next;
	unsigned async_events;
	int access;
	struct hw_rq *rq;   // its own, or that of srq
	struct hw_srq *srq;
	_Alignas(64) int generate, opcode, flags;
	uint32_t length;
};

struct hw_pd {
	struct ibv_pd ibv;
	int users;
};

struct hw_mr {
	struct ibv_mr ibv;
	struct hw_mr *next;
	int access;
};

static struct {
	pthread_mutex_t mu;
	struct world_device *devices[dbl_devices];
	int count;
	struct hw_qp *qps;
	struct hw_mr *mrs;
	uint32_t next_qpn, next_key;
	char log[1 << 16];
	int logged;
	struct dbl_modify modified[256];
	int modifications;
	struct ibv_qp_init_attr created;
	int hangs;
} world = {.mu = PTHREAD_MUTEX_INITIALIZER};

#define CALLS(F) \
	F(fork_init) F(get_device_list) F(free_device_list) F(open_device) F(close_device) F(query_device) F(query_port) \
	F(query_gid_table) F(get_async_event) F(alloc_pd) F(dealloc_pd) F(reg_mr) F(dereg_mr) F(create_comp_channel) \
	F(destroy_comp_channel) F(create_cq) F(destroy_cq) F(get_cq_event) F(create_qp) F(modify_qp) F(query_qp) F(destroy_qp) \
	F(create_srq) F(modify_srq) F(destroy_srq) F(poll_cq) F(post_recv) F(post_srq_recv) F(req_notify_cq)

enum {
#define NUMBER(name) call_##name,
	CALLS(NUMBER)
	calls
};
static const char *const call_names[] = {
#define NAME(name) #name,
	CALLS(NAME)
};
static struct {
	int errnum, after, times;
} faults[calls];

// enter notes a control call and returns the errno it is to fail with. What is
// asked all the time is not noted.
static int enter(int call)
{
	int e = 0;
	pthread_mutex_lock(&world.mu);
	if (faults[call].errnum) {
		if (faults[call].after > 0)
			faults[call].after--;
		else if (faults[call].times) {
			if (faults[call].times > 0)
				faults[call].times--;
			e = faults[call].errnum;
		}
	}
	if (call != call_query_qp && call != call_get_cq_event && call != call_get_async_event)
		world.logged += snprintf(world.log + world.logged, sizeof world.log - (size_t)world.logged, "%s%s\n", call_names[call], e ? "!" : "");
	if ((size_t)world.logged >= sizeof world.log - 64)
		world.logged = 0;
	pthread_mutex_unlock(&world.mu);
	return e;
}

// faulty is enter for the data path.
static int faulty(int call) { return __builtin_expect(faults[call].errnum, 0) ? enter(call) : 0; }

static struct device_context *dc_of(struct ibv_context *c)
{
	return (struct device_context *)((char *)c - offsetof(struct device_context, v.context));
}

#define GONE(c) (__atomic_load_n(&dc_of(c)->of->removed, __ATOMIC_ACQUIRE) ? EIO : 0)

static void spin_lock(char *s)
{
	while (__atomic_test_and_set(s, __ATOMIC_ACQUIRE))
		;
}
static void spin_unlock(char *s) { __atomic_clear(s, __ATOMIC_RELEASE); }

// emit queues an asynchronous event. It runs under the world's mutex or on the
// only thread that does.
static int emit(struct device_context *dc, struct ibv_async_event e)
{
	char token = 0;
	if (dc->last - dc->first == 64 || dc->async_write < 0)
		return -ENOSPC;
	dc->pending[dc->last++ % 64] = e;
	return write(dc->async_write, &token, 1) == 1 ? 0 : -errno;
}

// purge drops the events of an object that is destroyed, as the kernel does.
static void purge(struct device_context *dc, const void *object)
{
	int to = dc->first;
	for (int i = dc->first; i < dc->last; i++) {
		struct ibv_async_event e = dc->pending[i % 64];
		int affiliated = e.event_type <= IBV_EVENT_PATH_MIG_ERR || (e.event_type >= IBV_EVENT_SRQ_ERR && e.event_type <= IBV_EVENT_QP_LAST_WQE_REACHED);
		if (!affiliated || (const void *)e.element.qp != object)
			dc->pending[to++ % 64] = e;
	}
	dc->last = to;
}

// put writes a completion. The caller is the hardware.
static int put(struct hw_cq *cq, const struct cqe *proto)
{
	uint32_t p = cq->producer;
	if (cq->overrun)
		return -EOVERFLOW;
	if (__builtin_expect(p - __atomic_load_n(&cq->doorbell, __ATOMIC_ACQUIRE) >= cq->size, 0)) {
		cq->overrun = 1;
		emit(cq->dc, (struct ibv_async_event){.element.cq = &cq->ibv, .event_type = IBV_EVENT_CQ_ERR});
		return -EOVERFLOW;
	}
	struct cqe *c = &cq->ring[p & (cq->size - 1)];
	c->id = proto->id;
	c->imm = proto->imm;
	c->byte_count = proto->byte_count;
	c->qpn = proto->qpn;
	c->vendor = proto->vendor;
	c->counter = proto->counter;
	c->opcode = proto->opcode;
	c->flags = proto->flags;
	c->syndrome = proto->syndrome;
	c->has_id = proto->has_id;
	__atomic_store_n(&c->owner, (uint8_t)((p >> cq->log & 1) ^ 1), __ATOMIC_RELEASE);
	cq->producer = p + 1;
	return 0;
}

// announce notifies who armed the queue before what was put.
static int announce(struct hw_cq *cq)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&cq->armed, __ATOMIC_RELAXED), 0) && __atomic_exchange_n(&cq->armed, 0, __ATOMIC_ACQ_REL)) {
		struct ibv_cq *which = &cq->ibv;
		if (write(cq->event_write, &which, sizeof which) != sizeof which)
			return -errno;
	}
	return 0;
}

static int produce(struct hw_cq *cq, const struct cqe *proto)
{
	int rc = put(cq, proto);
	return rc ? rc : announce(cq);
}

static int outstanding(struct hw_qp *qp)
{
	return (int)(ntohl(__atomic_load_n(&qp->rq->doorbell, __ATOMIC_ACQUIRE)) - qp->rq->used);
}

// take is the hardware beginning to use the next receive.
static uint32_t take(struct hw_qp *qp)
{
	uint32_t at = qp->rq->used++;
	struct hw_srq *srq = qp->srq;
	if (srq && srq->limit && outstanding(qp) < (int)srq->limit) {
		srq->limit = 0;
		emit(qp->dc, (struct ibv_async_event){.element.srq = &srq->ibv, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED});
	}
	return at;
}

// flush completes all receives that the hardware has. Those of a shared queue
// stay, and the queue pair, which goes to error once, says that it takes none.
static void flush(struct hw_qp *qp, enum ibv_qp_state from)
{
	if (qp->srq) {
		if (from != IBV_QPS_ERR)
			emit(qp->dc, (struct ibv_async_event){.element.qp = &qp->ibv, .event_type = IBV_EVENT_QP_LAST_WQE_REACHED});
		return;
	}
	struct cqe c = {.qpn = htonl(qp->ibv.qp_num), .syndrome = IBV_WC_WR_FLUSH_ERR, .vendor = htonl(0xf5)};
	while (outstanding(qp) > 0) {
		c.counter = htons((uint16_t)qp->rq->used++);
		produce((struct hw_cq *)qp->ibv.recv_cq, &c);
	}
}

static int hw_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct hw_cq *cq = (struct hw_cq *)ibv;
	if (faulty(call_poll_cq))
		return -1;
	spin_lock(&cq->spin);
	uint32_t at = cq->consumer;
	int got = 0;
	while (got < n) {
		struct cqe *c = &cq->ring[at & (cq->size - 1)];
		if (__atomic_load_n(&c->owner, __ATOMIC_ACQUIRE) != (uint8_t)((at >> cq->log & 1) ^ 1))
			break;
		at++;
		uint32_t qpn = ntohl(c->qpn);
		struct hw_qp *qp = cq->last;
		if (__builtin_expect(!qp || qp->ibv.qp_num != qpn, 0)) {
			pthread_mutex_lock(&world.mu);
			for (qp = world.qps; qp && qp->ibv.qp_num != qpn; qp = qp->next)
				;
			pthread_mutex_unlock(&world.mu);
			if (!qp)
				continue; // of a queue pair that was destroyed
			cq->last = qp;
		}
		struct ibv_wc *w = &wc[got++];
		w->qp_num = qpn;
		w->status = c->syndrome;
		w->vendor_err = 0;
		int receive = !c->has_id;
		w->wr_id = __builtin_expect(receive, 1) ? qp->rq->ids[ntohs(c->counter) & (qp->rq->size - 1)] : c->id;
		if (__builtin_expect(c->syndrome, 0)) {
			// As with real ones, the other fields are what was there.
			w->vendor_err = ntohl(c->vendor);
			w->wc_flags = IBV_WC_WITH_IMM;
		} else {
			w->opcode = c->opcode;
			w->byte_len = ntohl(c->byte_count);
			w->imm_data = c->imm;
			w->wc_flags = c->flags;
		}
		if (__builtin_expect(receive, 1)) {
			// Room in this queue before room in that one, for whoever posts
			// meanwhile.
			__atomic_store_n(&cq->doorbell, at, __ATOMIC_RELEASE);
			__atomic_store_n(&qp->rq->tail, qp->rq->tail + 1, __ATOMIC_RELEASE);
		}
	}
	if (at != cq->consumer) {
		cq->consumer = at;
		__atomic_store_n(&cq->doorbell, at, __ATOMIC_RELEASE);
	}
	spin_unlock(&cq->spin);
	return got;
}

static int hw_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	int e = faulty(call_req_notify_cq);
	if (e)
		return e;
	(void)solicited_only;
	__atomic_store_n(&((struct hw_cq *)ibv)->armed, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static inline int post(struct hw_rq *rq, struct hw_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct ibv_qp *ibv = qp ? &qp->ibv : NULL;
	int rc = 0;
	spin_lock(&rq->spin);
	uint32_t at = rq->head, before = at;
	for (; wr; wr = wr->next) {
		if (__builtin_expect(wr->num_sge > 1 || (qp && (ibv->state == IBV_QPS_RESET || qp->srq)), 0))
			rc = EINVAL;
		else if (__builtin_expect(at - __atomic_load_n(&rq->tail, __ATOMIC_ACQUIRE) >= rq->max, 0))
			rc = ENOMEM;
		else
			rc = faulty(qp ? call_post_recv : call_post_srq_recv);
		if (__builtin_expect(rc, 0)) {
			*bad = wr;
			break;
		}
		struct descriptor *d = &rq->ring[at & (rq->size - 1)];
		if (wr->num_sge) {
			d->length = htonl(wr->sg_list->length);
			d->lkey = htonl(wr->sg_list->lkey);
			d->address = htobe64(wr->sg_list->addr);
		} else {
			*d = (struct descriptor){.lkey = htonl(0x100)}; // an invalid key ends the list
		}
		rq->ids[at & (rq->size - 1)] = wr->wr_id;
		at++;
	}
	if (at != before) {
		rq->head = at;
		__atomic_store_n(&rq->doorbell, htonl(at), __ATOMIC_RELEASE);
		if (qp && qp->generate) {
			struct cqe c = {.qpn = htonl(ibv->qp_num), .opcode = (uint8_t)qp->opcode, .flags = (uint8_t)qp->flags, .byte_count = htonl(qp->length)};
			while (qp->rq->used != at) {
				c.imm = htonl(qp->rq->used);
				c.counter = htons((uint16_t)qp->rq->used++);
				put((struct hw_cq *)ibv->recv_cq, &c);
			}
			announce((struct hw_cq *)ibv->recv_cq);
		}
		// In ERR they are not flushed, as with rdma_rxe, whose queue is memory
		// that the kernel looks at when the state changes.
	}
	spin_unlock(&rq->spin);
	return rc;
}

static int hw_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct hw_qp *qp = (struct hw_qp *)ibv;
	return post(qp->rq, qp, wr, bad);
}

static int hw_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post(&((struct hw_srq *)ibv)->rq, NULL, wr, bad);
}

// Control calls.

static int dbl_fork_init(void) { return enter(call_fork_init); }

static struct ibv_device **dbl_get_device_list(int *n)
{
	int e = enter(call_get_device_list);
	if (e) {
		errno = e;
		return NULL;
	}
	struct ibv_device **list = calloc(dbl_devices + 1, sizeof *list);
	for (int i = 0; i < world.count; i++)
		list[i] = &world.devices[i]->dev;
	*n = world.count;
	return list;
}

static void dbl_free_device_list(struct ibv_device **list)
{
	enter(call_free_device_list);
	free(list);
}

static int vctx_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t size)
{
	(void)size;
	if (port != 1)
		return EINVAL;
	*a = dc_of(c)->of->conf.port;
	return 0;
}

static struct ibv_context *dbl_open_device(struct ibv_device *dev)
{
	int e = enter(call_open_device);
	struct world_device *d = NULL;
	for (int i = 0; i < world.count; i++)
		if (dev == &world.devices[i]->dev)
			d = world.devices[i];
	int fds[2];
	if (!e && (!d || d->removed))
		e = ENODEV;
	if (!e && pipe2(fds, O_CLOEXEC))
		e = errno;
	if (e) {
		errno = e;
		return NULL;
	}
	struct device_context *dc = calloc(1, sizeof *dc);
	dc->of = d;
	dc->async_write = fds[1];
	dc->v.sz = sizeof dc->v;
	dc->v.query_port = vctx_query_port;
	struct ibv_context *c = &dc->v.context;
	c->device = dev;
	c->async_fd = fds[0];
	c->cmd_fd = -1;
	c->num_comp_vectors = 2;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->ops.poll_cq = hw_poll_cq;
	c->ops.post_recv = hw_post_recv;
	c->ops.post_srq_recv = hw_post_srq_recv;
	c->ops.req_notify_cq = hw_req_notify_cq;
	pthread_mutex_init(&c->mutex, NULL);
	d->open = dc;
	return c;
}

static int dbl_close_device(struct ibv_context *c)
{
	int e = enter(call_close_device);
	if (e)
		return e;
	struct device_context *dc = dc_of(c);
	if (dc->cqs + dc->qps + dc->pds + dc->mrs + dc->channels)
		return EBUSY; // the kernel would clean up; here it is a leak
	close(c->async_fd);
	if (dc->async_write >= 0)
		close(dc->async_write);
	if (dc->of->open == dc)
		dc->of->open = NULL;
	free(dc);
	return 0;
}

static int dbl_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	int e = enter(call_query_device);
	if (!e)
		e = GONE(c);
	if (!e)
		*a = dc_of(c)->of->conf.limits;
	return e;
}

// Through the inline function of verbs.h, which finds vctx_query_port.
static int dbl_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	int e = enter(call_query_port);
	if (!e)
		e = GONE(c);
	return e ? e : ibv_query_port(c, port, a);
}

static ssize_t dbl_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *to, size_t max, uint32_t flags)
{
	(void)flags;
	int e = enter(call_query_gid_table);
	if (!e)
		e = GONE(c);
	pthread_mutex_lock(&world.mu);
	struct dbl_device *d = &dc_of(c)->of->conf;
	ssize_t n = d->gid_count;
	if (!e && (size_t)n > max)
		e = EINVAL;
	if (!e)
		memcpy(to, d->gids, (size_t)n * sizeof *to);
	pthread_mutex_unlock(&world.mu);
	return e ? -e : n;
}

static int dbl_get_async_event(struct ibv_context *c, struct ibv_async_event *out)
{
	struct device_context *dc = dc_of(c);
	char token;
	ssize_t n = read(c->async_fd, &token, 1);
	if (n != 1) {
		if (n == 0)
			errno = EIO;
		return -1;
	}
	pthread_mutex_lock(&world.mu);
	if (dc->first == dc->last) {
		pthread_mutex_unlock(&world.mu);
		errno = EAGAIN;
		return -1;
	}
	*out = dc->pending[dc->first++ % 64];
	switch (out->event_type) {
	case IBV_EVENT_CQ_ERR:
		((struct hw_cq *)out->element.cq)->async_events++;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		((struct hw_qp *)out->element.qp)->async_events++;
		break;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
	case IBV_EVENT_SRQ_ERR:
		((struct hw_srq *)out->element.srq)->async_events++;
		break;
	default:
		break;
	}
	pthread_mutex_unlock(&world.mu);
	return 0;
}

static struct ibv_pd *dbl_alloc_pd(struct ibv_context *c)
{
	int e = enter(call_alloc_pd);
	if (!e)
		e = GONE(c);
	if (e) {
		errno = e;
		return NULL;
	}
	struct hw_pd *pd = calloc(1, sizeof *pd);
	pd->ibv.context = c;
	pthread_mutex_lock(&world.mu);
	dc_of(c)->pds++;
	pthread_mutex_unlock(&world.mu);
	return &pd->ibv;
}

static int dbl_dealloc_pd(struct ibv_pd *ibv)
{
	int e = enter(call_dealloc_pd);
	struct hw_pd *pd = (struct hw_pd *)ibv;
	if (!e && pd->users)
		e = EBUSY;
	if (e)
		return e;
	pthread_mutex_lock(&world.mu);
	dc_of(ibv->context)->pds--;
	pthread_mutex_unlock(&world.mu);
	e = GONE(ibv->context);
	free(pd);
	return e;
}

static struct ibv_mr *dbl_reg_mr(struct ibv_pd *ibv, void *addr, size_t length, int access)
{
	int e = enter(call_reg_mr);
	if (!e)
		e = GONE(ibv->context);
	if (!e && !length)
		e = EINVAL;
	if (e) {
		errno = e;
		return NULL;
	}
	struct hw_mr *mr = calloc(1, sizeof *mr);
	mr->ibv = (struct ibv_mr){.context = ibv->context, .pd = ibv, .addr = addr, .length = length};
	mr->access = access;
	pthread_mutex_lock(&world.mu);
	mr->ibv.lkey = ++world.next_key << 8;
	mr->ibv.rkey = mr->ibv.lkey | 1; // not the same
	mr->next = world.mrs;
	world.mrs = mr;
	((struct hw_pd *)ibv)->users++;
	dc_of(ibv->context)->mrs++;
	pthread_mutex_unlock(&world.mu);
	return &mr->ibv;
}

static int dbl_dereg_mr(struct ibv_mr *ibv)
{
	int e = enter(call_dereg_mr);
	if (e)
		return e;
	pthread_mutex_lock(&world.mu);
	for (struct hw_mr **p = &world.mrs; *p; p = &(*p)->next)
		if (&(*p)->ibv == ibv) {
			*p = (*p)->next;
			break;
		}
	((struct hw_pd *)ibv->pd)->users--;
	dc_of(ibv->context)->mrs--;
	pthread_mutex_unlock(&world.mu);
	e = GONE(ibv->context);
	free(ibv);
	return e;
}

struct hw_channel {
	struct ibv_comp_channel ibv;
	int write;
};

static struct ibv_comp_channel *dbl_create_comp_channel(struct ibv_context *c)
{
	int e = enter(call_create_comp_channel);
	int fds[2];
	if (!e)
		e = GONE(c);
	if (!e && pipe2(fds, O_CLOEXEC))
		e = errno;
	if (e) {
		errno = e;
		return NULL;
	}
	struct hw_channel *ch = calloc(1, sizeof *ch);
	ch->ibv.context = c;
	ch->ibv.fd = fds[0];
	ch->write = fds[1];
	pthread_mutex_lock(&world.mu);
	dc_of(c)->channels++;
	pthread_mutex_unlock(&world.mu);
	return &ch->ibv;
}

static int dbl_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	int e = enter(call_destroy_comp_channel);
	struct hw_channel *ch = (struct hw_channel *)ibv;
	if (!e && ibv->refcnt)
		e = EBUSY;
	if (e)
		return e;
	close(ibv->fd);
	close(ch->write);
	pthread_mutex_lock(&world.mu);
	dc_of(ibv->context)->channels--;
	pthread_mutex_unlock(&world.mu);
	free(ch);
	return 0;
}

static uint32_t power(uint32_t n, uint32_t *log)
{
	for (*log = 0; 1u << *log < n; ++*log)
		;
	return 1u << *log;
}

static struct ibv_cq *dbl_create_cq(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	int e = enter(call_create_cq);
	if (!e)
		e = GONE(c);
	if (!e && (cqe < 1 || vector < 0 || vector >= c->num_comp_vectors))
		e = EINVAL;
	if (e) {
		errno = e;
		return NULL;
	}
	struct hw_cq *cq = aligned_alloc(64, (sizeof *cq + 63) & ~63ul);
	memset(cq, 0, sizeof *cq);
	cq->size = power((uint32_t)cqe, &cq->log);
	cq->ring = aligned_alloc(64, cq->size * sizeof *cq->ring);
	memset(cq->ring, 0, cq->size * sizeof *cq->ring);
	cq->dc = dc_of(c);
	cq->ibv.context = c;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = (int)cq->size;
	cq->event_write = ((struct hw_channel *)channel)->write;
	channel->refcnt++;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_lock(&world.mu);
	cq->dc->cqs++;
	pthread_mutex_unlock(&world.mu);
	return &cq->ibv;
}

// await waits, as the library does, until an object's events are acknowledged;
// the library would wait for ever.
static int await(pthread_mutex_t *mu, pthread_cond_t *cond, const uint32_t *done, unsigned want)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 1;
	int e = 0;
	pthread_mutex_lock(mu);
	while (*done != want && !e)
		e = pthread_cond_timedwait(cond, mu, &end);
	pthread_mutex_unlock(mu);
	if (e) {
		pthread_mutex_lock(&world.mu);
		world.hangs++;
		pthread_mutex_unlock(&world.mu);
	}
	return e;
}

static int dbl_destroy_cq(struct ibv_cq *ibv)
{
	int e = enter(call_destroy_cq);
	struct hw_cq *cq = (struct hw_cq *)ibv;
	if (!e && cq->users)
		e = EBUSY;
	if (e)
		return e;
	pthread_mutex_lock(&world.mu);
	purge(cq->dc, ibv);
	pthread_mutex_unlock(&world.mu);
	e = await(&ibv->mutex, &ibv->cond, &ibv->comp_events_completed, cq->comp_events);
	if (!e)
		e = await(&ibv->mutex, &ibv->cond, &ibv->async_events_completed, cq->async_events);
	if (e)
		return e;
	ibv->channel->refcnt--;
	pthread_mutex_lock(&world.mu);
	cq->dc->cqs--;
	pthread_mutex_unlock(&world.mu);
	free(cq->ring);
	free(cq);
	return 0;
}

static int dbl_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **which, void **cq_context)
{
	int e = enter(call_get_cq_event);
	if (e) {
		errno = e;
		return -1;
	}
	if (read(channel->fd, which, sizeof *which) != sizeof *which)
		return -1;
	*cq_context = (*which)->cq_context;
	((struct hw_cq *)*which)->comp_events++;
	return 0;
}

static void rq_init(struct hw_rq *rq, uint32_t max)
{
	uint32_t log;
	memset(rq, 0, sizeof *rq);
	rq->max = max;
	rq->size = power(max, &log);
	rq->ring = aligned_alloc(64, (rq->size * sizeof *rq->ring + 63) & ~63ul);
	rq->ids = calloc(rq->size, sizeof *rq->ids);
}

static void rq_free(struct hw_rq *rq)
{
	free(rq->ring);
	free(rq->ids);
}

static struct ibv_srq *dbl_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	int e = enter(call_create_srq);
	if (!e)
		e = GONE(pd->context);
	if (!e && (!a->attr.max_wr || a->attr.max_sge != 1))
		e = EINVAL;
	if (e) {
		errno = e;
		return NULL;
	}
	struct hw_srq *srq = aligned_alloc(64, (sizeof *srq + 63) & ~63ul);
	memset(srq, 0, sizeof *srq);
	rq_init(&srq->rq, a->attr.max_wr);
	srq->dc = dc_of(pd->context);
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = a->srq_context;
	srq->ibv.pd = pd;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	pthread_mutex_lock(&world.mu);
	((struct hw_pd *)pd)->users++;
	srq->dc->srqs++;
	pthread_mutex_unlock(&world.mu);
	return &srq->ibv;
}

static int dbl_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *a, int mask)
{
	struct hw_srq *srq = (struct hw_srq *)ibv;
	int e = enter(call_modify_srq);
	if (!e)
		e = GONE(ibv->context);
	if (!e && (mask != IBV_SRQ_LIMIT || a->srq_limit > srq->rq.max))
		e = EINVAL;
	if (e)
		return e;
	pthread_mutex_lock(&world.mu);
	srq->limit = a->srq_limit;
	pthread_mutex_unlock(&world.mu);
	return 0;
}

static int dbl_destroy_srq(struct ibv_srq *ibv)
{
	struct hw_srq *srq = (struct hw_srq *)ibv;
	int e = enter(call_destroy_srq);
	if (!e && srq->users)
		e = EBUSY;
	if (e)
		return e;
	pthread_mutex_lock(&world.mu);
	purge(srq->dc, ibv);
	pthread_mutex_unlock(&world.mu);
	if (await(&ibv->mutex, &ibv->cond, &ibv->events_completed, srq->async_events))
		return ETIMEDOUT;
	pthread_mutex_lock(&world.mu);
	((struct hw_pd *)ibv->pd)->users--;
	srq->dc->srqs--;
	pthread_mutex_unlock(&world.mu);
	e = GONE(ibv->context);
	rq_free(&srq->rq);
	free(srq);
	return e;
}

static struct ibv_qp *dbl_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	int e = enter(call_create_qp);
	if (!e)
		e = GONE(pd->context);
	struct hw_srq *srq = (struct hw_srq *)a->srq;
	if (!e && (a->qp_type != IBV_QPT_RC || !a->cap.max_recv_wr != !!srq || !a->cap.max_send_wr))
		e = EINVAL;
	if (!e && srq && (srq->ibv.pd != pd || (srq->cq && srq->cq != a->recv_cq)))
		e = EINVAL;
	if (e) {
		errno = e;
		return NULL;
	}
	struct hw_qp *qp = aligned_alloc(64, (sizeof *qp + 63) & ~63ul);
	memset(qp, 0, sizeof *qp);
	if (srq) {
		qp->srq = srq;
		qp->rq = &srq->rq;
	} else {
		qp->rq = aligned_alloc(64, (sizeof *qp->rq + 63) & ~63ul);
		rq_init(qp->rq, a->cap.max_recv_wr);
	}
	qp->dc = dc_of(pd->context);
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = a->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = a->send_cq;
	qp->ibv.recv_cq = a->recv_cq;
	qp->ibv.qp_type = a->qp_type;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	pthread_mutex_lock(&world.mu);
	world.created = *a;
	qp->ibv.qp_num = world.next_qpn++;
	qp->next = world.qps;
	world.qps = qp;
	((struct hw_cq *)a->send_cq)->users++;
	((struct hw_cq *)a->recv_cq)->users++;
	((struct hw_pd *)pd)->users++;
	if (srq) {
		srq->users++;
		srq->cq = a->recv_cq;
	}
	qp->dc->qps++;
	pthread_mutex_unlock(&world.mu);
	return &qp->ibv;
}

// The transitions and attributes that the kernel wants of an RC queue pair
// (drivers/infiniband/core/verbs.c, qp_state_table).
static int legal(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int want;
	mask &= ~IBV_QP_STATE;
	switch (to) {
	case IBV_QPS_INIT:
		want = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		return (from == IBV_QPS_RESET || from == IBV_QPS_INIT) && mask == want;
	case IBV_QPS_RTR:
		want = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		return from == IBV_QPS_INIT && mask == want;
	case IBV_QPS_RTS:
		want = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
		return from == IBV_QPS_RTR && mask == want;
	case IBV_QPS_ERR:
		return from != IBV_QPS_RESET && mask == 0;
	default:
		return to == IBV_QPS_RESET && mask == 0;
	}
}

static int dbl_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *a, int mask)
{
	struct hw_qp *qp = (struct hw_qp *)ibv;
	int e = enter(call_modify_qp);
	if (!e)
		e = GONE(ibv->context);
	pthread_mutex_lock(&world.mu);
	if (world.modifications < (int)(sizeof world.modified / sizeof *world.modified))
		world.modified[world.modifications++] = (struct dbl_modify){*a, mask, ibv->qp_num};
	if (!e && (!(mask & IBV_QP_STATE) || !legal(ibv->state, a->qp_state, mask)))
		e = EINVAL;
	if (!e) {
		enum ibv_qp_state from = ibv->state;
		ibv->state = a->qp_state;
		if (mask & IBV_QP_ACCESS_FLAGS)
			qp->access = (int)a->qp_access_flags;
		if (a->qp_state == IBV_QPS_ERR)
			flush(qp, from);
	}
	pthread_mutex_unlock(&world.mu);
	return e;
}

static int dbl_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	(void)init;
	int e = enter(call_query_qp);
	if (!e)
		e = GONE(ibv->context);
	pthread_mutex_lock(&world.mu);
	a->qp_state = ibv->state;
	pthread_mutex_unlock(&world.mu);
	return e;
}

static int dbl_destroy_qp(struct ibv_qp *ibv)
{
	struct hw_qp *qp = (struct hw_qp *)ibv;
	int e = enter(call_destroy_qp);
	if (e)
		return e;
	pthread_mutex_lock(&world.mu);
	purge(qp->dc, ibv);
	pthread_mutex_unlock(&world.mu);
	if (await(&ibv->mutex, &ibv->cond, &ibv->events_completed, qp->async_events))
		return ETIMEDOUT;
	struct hw_cq *cqs[2] = {(struct hw_cq *)ibv->recv_cq, (struct hw_cq *)ibv->send_cq};
	for (int i = 0; i < 2; i++) {
		spin_lock(&cqs[i]->spin);
		cqs[i]->last = NULL;
		spin_unlock(&cqs[i]->spin);
	}
	pthread_mutex_lock(&world.mu);
	for (struct hw_qp **p = &world.qps; *p; p = &(*p)->next)
		if (*p == qp) {
			*p = qp->next;
			break;
		}
	cqs[0]->users--;
	cqs[1]->users--;
	((struct hw_pd *)ibv->pd)->users--;
	if (qp->srq && !--qp->srq->users)
		qp->srq->cq = NULL;
	qp->dc->qps--;
	pthread_mutex_unlock(&world.mu);
	e = GONE(ibv->context);
	if (!qp->srq) {
		rq_free(qp->rq);
		free(qp->rq);
	}
	free(qp);
	return e;
}

// The functions have the types of those they stand for.
#define SAME(mine, real) _Static_assert(__builtin_types_compatible_p(__typeof__(mine), __typeof__(real)), #mine)
SAME(dbl_fork_init, ibv_fork_init);
SAME(dbl_free_device_list, ibv_free_device_list);
SAME(dbl_open_device, ibv_open_device);
SAME(dbl_close_device, ibv_close_device);
SAME(dbl_query_device, ibv_query_device);
SAME(dbl_get_async_event, ibv_get_async_event);
SAME(dbl_alloc_pd, ibv_alloc_pd);
SAME(dbl_dealloc_pd, ibv_dealloc_pd);
SAME(dbl_dereg_mr, ibv_dereg_mr);
SAME(dbl_create_comp_channel, ibv_create_comp_channel);
SAME(dbl_destroy_comp_channel, ibv_destroy_comp_channel);
SAME(dbl_create_cq, ibv_create_cq);
SAME(dbl_destroy_cq, ibv_destroy_cq);
SAME(dbl_get_cq_event, ibv_get_cq_event);
SAME(dbl_create_qp, ibv_create_qp);
SAME(dbl_modify_qp, ibv_modify_qp);
SAME(dbl_query_qp, ibv_query_qp);
SAME(dbl_destroy_qp, ibv_destroy_qp);
SAME(dbl_create_srq, ibv_create_srq);
SAME(dbl_modify_srq, ibv_modify_srq);
SAME(dbl_destroy_srq, ibv_destroy_srq);

void *dbl_function(const char *name)
{
#define FUNCTION(call) \
	if (!strcmp(name, #call)) \
		return (void *)dbl_##call;
	FUNCTION(fork_init) FUNCTION(get_device_list) FUNCTION(free_device_list) FUNCTION(open_device) FUNCTION(close_device)
	FUNCTION(query_device) FUNCTION(query_port) FUNCTION(query_gid_table) FUNCTION(get_async_event) FUNCTION(alloc_pd)
	FUNCTION(dealloc_pd) FUNCTION(reg_mr) FUNCTION(dereg_mr) FUNCTION(create_comp_channel) FUNCTION(destroy_comp_channel)
	FUNCTION(create_cq) FUNCTION(destroy_cq) FUNCTION(get_cq_event) FUNCTION(create_qp) FUNCTION(modify_qp) FUNCTION(query_qp)
	FUNCTION(destroy_qp) FUNCTION(create_srq) FUNCTION(modify_srq) FUNCTION(destroy_srq)
	return NULL;
}

// What a test does with it.

void dbl_reset(void)
{
	pthread_mutex_lock(&world.mu);
	for (int i = 0; i < world.count; i++)
		if (!world.devices[i]->open)
			free(world.devices[i]);
	world.count = 0;
	world.qps = NULL;
	world.mrs = NULL;
	world.next_qpn = 0x11;
	world.next_key = 0x17;
	world.logged = 0;
	world.modifications = 0;
	world.hangs = 0;
	memset(faults, 0, sizeof faults);
	pthread_mutex_unlock(&world.mu);
}

int dbl_add(const struct dbl_device *conf)
{
	if (world.count == dbl_devices)
		return -ENOSPC;
	struct world_device *d = calloc(1, sizeof *d);
	d->conf = *conf;
	d->dev.node_type = IBV_NODE_CA;
	d->dev.transport_type = IBV_TRANSPORT_IB;
	memcpy(d->dev.name, conf->name, sizeof d->dev.name);
	memcpy(d->dev.dev_name, conf->uverbs, sizeof d->dev.dev_name);
	world.devices[world.count] = d;
	return world.count++;
}

int dbl_fail(const char *call, int errnum, int after, int times)
{
	for (int i = 0; i < calls; i++)
		if (!strcmp(call, call_names[i])) {
			pthread_mutex_lock(&world.mu);
			faults[i].errnum = errnum;
			faults[i].after = after;
			faults[i].times = times;
			pthread_mutex_unlock(&world.mu);
			return 0;
		}
	return -ENOENT;
}

int dbl_calls(char *to, int size, int from)
{
	pthread_mutex_lock(&world.mu);
	int n = world.logged - from;
	if (n < 0 || n > size)
		n = 0;
	memcpy(to, world.log + from, (size_t)n);
	pthread_mutex_unlock(&world.mu);
	return n;
}

int dbl_live(char *to, int size)
{
	int n = 0;
	pthread_mutex_lock(&world.mu);
	for (int i = 0; i < world.count; i++) {
		struct device_context *dc = world.devices[i]->open;
		if (dc)
			n += snprintf(to + n, (size_t)(size - n), "%s: %d pd %d mr %d channel %d cq %d qp%s; ", world.devices[i]->dev.name,
				dc->pds, dc->mrs, dc->channels, dc->cqs, dc->qps, dc->srqs ? " and srqs" : "");
	}
	pthread_mutex_unlock(&world.mu);
	return n;
}

int dbl_modified(struct dbl_modify *to, int max)
{
	pthread_mutex_lock(&world.mu);
	int n = world.modifications < max ? world.modifications : max;
	memcpy(to, world.modified, (size_t)n * sizeof *to);
	pthread_mutex_unlock(&world.mu);
	return n;
}

int dbl_hangs(void) { return world.hangs; }

int dbl_created(struct ibv_qp_init_attr *a)
{
	*a = world.created;
	return 0;
}

void dbl_set_port(int device, const struct ibv_port_attr *a)
{
	pthread_mutex_lock(&world.mu);
	world.devices[device]->conf.port = *a;
	pthread_mutex_unlock(&world.mu);
}

void dbl_set_gids(int device, const struct ibv_gid_entry *e, int n)
{
	pthread_mutex_lock(&world.mu);
	memcpy(world.devices[device]->conf.gids, e, (size_t)n * sizeof *e);
	world.devices[device]->conf.gid_count = n;
	pthread_mutex_unlock(&world.mu);
}

int dbl_access(uint32_t rkey)
{
	for (struct hw_mr *mr = world.mrs; mr; mr = mr->next)
		if (mr->ibv.rkey == rkey)
			return mr->access;
	return -ENOENT;
}

static struct hw_qp *find(uint32_t qpn)
{
	struct hw_qp *qp = world.qps;
	while (qp && qp->ibv.qp_num != qpn)
		qp = qp->next;
	return qp;
}

int dbl_emit(int device, int type, uint32_t port, uint32_t qpn)
{
	pthread_mutex_lock(&world.mu);
	struct device_context *dc = world.devices[device]->open;
	struct ibv_async_event e = {.event_type = (enum ibv_event_type)type, .element.port_num = (int)port};
	int rc = dc ? 0 : -ENODEV;
	if (!rc && qpn) {
		struct hw_qp *qp = find(qpn);
		if (qp)
			e.element.qp = &qp->ibv;
		else
			rc = -ENOENT;
	}
	if (!rc)
		rc = emit(dc, e);
	pthread_mutex_unlock(&world.mu);
	return rc;
}

int dbl_remove(int device)
{
	pthread_mutex_lock(&world.mu);
	struct world_device *d = world.devices[device];
	__atomic_store_n(&d->removed, 1, __ATOMIC_RELEASE);
	if (d->open && d->open->async_write >= 0) {
		close(d->open->async_write);
		d->open->async_write = -1;
	}
	pthread_mutex_unlock(&world.mu);
	return 0;
}

// memory finds the region of a key that holds an area.
static int memory(uint32_t key, int remote, uint64_t address, uint32_t length, int access)
{
	for (struct hw_mr *mr = world.mrs; mr; mr = mr->next) {
		uint64_t base = (uintptr_t)mr->ibv.addr;
		if ((remote ? mr->ibv.rkey : mr->ibv.lkey) == key)
			return (mr->access & access) == access && address >= base && length <= mr->ibv.length && address - base <= mr->ibv.length - length;
	}
	return 0;
}

// fault takes the queue pair to error: a completion for the receive in use, if
// there is one, and flushes for the rest of its own queue.
static void fault(struct hw_qp *qp, int status, uint32_t vendor)
{
	if (status && outstanding(qp) > 0) {
		struct cqe c = {.qpn = htonl(qp->ibv.qp_num), .syndrome = (uint8_t)status, .vendor = htonl(vendor)};
		c.counter = htons((uint16_t)take(qp));
		produce((struct hw_cq *)qp->ibv.recv_cq, &c);
	}
	enum ibv_qp_state from = qp->ibv.state;
	qp->ibv.state = IBV_QPS_ERR;
	flush(qp, from);
}

int dbl_deliver(uint32_t qpn, const struct dbl_message *m)
{
	int rc = 0;
	pthread_mutex_lock(&world.mu);
	struct hw_qp *qp = find(qpn);
	if (!qp || (qp->ibv.state != IBV_QPS_RTR && qp->ibv.state != IBV_QPS_RTS)) {
		rc = -ENOTCONN;
		goto out;
	}
	if (m->write && (!(qp->access & IBV_ACCESS_REMOTE_WRITE) || !memory(m->rkey, 1, m->address, m->length, IBV_ACCESS_REMOTE_WRITE))) {
		fault(qp, 0, 0);
		emit(qp->dc, (struct ibv_async_event){.element.qp = &qp->ibv, .event_type = IBV_EVENT_QP_ACCESS_ERR});
		rc = -EACCES;
		goto out;
	}
	if (m->write && m->length)
		memcpy((void *)(uintptr_t)m->address, m->data, m->length);
	if (m->write && !m->with_imm)
		goto out;
	if (outstanding(qp) <= 0) {
		rc = -EAGAIN;
		goto out;
	}
	struct descriptor *d = &qp->rq->ring[qp->rq->used & (qp->rq->size - 1)];
	if (!m->write && m->length) {
		if (m->length > ntohl(d->length)) {
			fault(qp, IBV_WC_LOC_LEN_ERR, 0x68);
			rc = -EMSGSIZE;
			goto out;
		}
		if (!memory(ntohl(d->lkey), 0, be64toh(d->address), m->length, IBV_ACCESS_LOCAL_WRITE)) {
			fault(qp, IBV_WC_LOC_PROT_ERR, 0x52);
			rc = -EFAULT;
			goto out;
		}
		memcpy((void *)(uintptr_t)be64toh(d->address), m->data, m->length);
	}
	struct cqe c = {
		.qpn = htonl(qpn),
		.opcode = m->write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.flags = m->with_imm ? IBV_WC_WITH_IMM : 0,
		.imm = htonl(m->imm),
		.byte_count = htonl(m->silent_length ? 0 : m->length),
		.counter = htons((uint16_t)take(qp)),
	};
	rc = produce((struct hw_cq *)qp->ibv.recv_cq, &c);
out:
	pthread_mutex_unlock(&world.mu);
	return rc;
}

int dbl_fault(uint32_t qpn, int status, uint32_t vendor)
{
	pthread_mutex_lock(&world.mu);
	struct hw_qp *qp = find(qpn);
	if (qp)
		fault(qp, status, vendor);
	pthread_mutex_unlock(&world.mu);
	return qp ? 0 : -ENOENT;
}

int dbl_complete(uint32_t qpn, uint64_t id, int status, int opcode, int flags, uint32_t imm, uint32_t length, uint32_t vendor)
{
	int rc = -ENOENT;
	pthread_mutex_lock(&world.mu);
	struct hw_qp *qp = find(qpn);
	if (qp) {
		struct cqe c = {
			.id = id, .has_id = 1, .qpn = htonl(qpn), .syndrome = (uint8_t)status, .opcode = (uint8_t)opcode,
			.flags = (uint8_t)flags, .imm = htonl(imm), .byte_count = htonl(length), .vendor = htonl(vendor),
		};
		rc = produce((struct hw_cq *)qp->ibv.recv_cq, &c);
	}
	pthread_mutex_unlock(&world.mu);
	return rc;
}

int dbl_posted(uint32_t qpn)
{
	pthread_mutex_lock(&world.mu);
	struct hw_qp *qp = find(qpn);
	int n = qp ? outstanding(qp) : -ENOENT;
	pthread_mutex_unlock(&world.mu);
	return n;
}

int dbl_descriptor(uint32_t qpn, int i, uint64_t *address, uint32_t *length, uint32_t *lkey)
{
	int rc = -ENOENT;
	pthread_mutex_lock(&world.mu);
	struct hw_qp *qp = find(qpn);
	if (qp && i < outstanding(qp)) {
		struct descriptor *d = &qp->rq->ring[(qp->rq->used + (uint32_t)i) & (qp->rq->size - 1)];
		*address = be64toh(d->address);
		*length = ntohl(d->length);
		*lkey = ntohl(d->lkey);
		rc = 0;
	}
	pthread_mutex_unlock(&world.mu);
	return rc;
}

int dbl_generate(uint32_t qpn, int opcode, int flags, uint32_t length, int on)
{
	struct hw_qp *qp = find(qpn);
	if (!qp)
		return -ENOENT;
	qp->opcode = opcode;
	qp->flags = flags;
	qp->length = length;
	qp->generate = on;
	return 0;
}

int dbl_unacked(uint32_t qpn)
{
	pthread_mutex_lock(&world.mu);
	struct hw_qp *qp = find(qpn);
	struct hw_cq *cq = qp ? (struct hw_cq *)qp->ibv.recv_cq : NULL;
	int n = cq ? (int)(cq->comp_events - cq->ibv.comp_events_completed) : -ENOENT;
	pthread_mutex_unlock(&world.mu);
	return n;
}

enum { most = 256 };

int64_t dbl_loop(uint32_t qpn, uint64_t base, uint32_t stride, uint32_t slots, uint32_t lkey, int batch, int64_t messages)
{
	struct hw_qp *q = find(qpn);
	if (!q || batch < 1 || batch > most)
		return -EINVAL;
	struct ibv_qp *qp = &q->ibv;
	struct ibv_cq *cq = qp->recv_cq;
	static __thread struct ibv_wc wcs[most];
	static __thread struct ibv_recv_wr wrs[most];
	static __thread struct ibv_sge sges[most];
	int64_t bytes = 0;
	for (int i = 0; i < batch; i++)
		wrs[i] = (struct ibv_recv_wr){.sg_list = &sges[i], .num_sge = 1, .next = i + 1 < batch ? &wrs[i + 1] : NULL};
	while (messages > 0) {
		int n = ibv_poll_cq(cq, batch, wcs);
		if (n < 0)
			return -EIO;
		for (int i = 0; i < n; i++) {
			uint64_t slot = wcs[i].wr_id;
			if (wcs[i].status != IBV_WC_SUCCESS || slot >= slots)
				return -EIO;
			bytes += wcs[i].byte_len;
			wrs[i].wr_id = slot;
			sges[i].addr = base + slot * stride;
			sges[i].length = stride;
			sges[i].lkey = lkey;
		}
		if (n == 0)
			continue;
		struct ibv_recv_wr *bad;
		wrs[n - 1].next = NULL;
		if (ibv_post_recv(qp, wrs, &bad))
			return -EIO;
		if (n < batch)
			wrs[n - 1].next = &wrs[n];
		messages -= n;
	}
	return bytes;
}

int64_t dbl_empty(uint32_t qpn, int64_t polls)
{
	struct hw_qp *q = find(qpn);
	struct ibv_wc wcs[16];
	int64_t found = 0;
	while (q && polls-- > 0)
		found += ibv_poll_cq(q->ibv.recv_cq, 16, wcs);
	return q ? found : -ENOENT;
}

int dbl_send(void *qp, int opcode, uint64_t local, uint32_t length, uint32_t lkey, uint64_t remote, uint32_t rkey, uint32_t imm, uint64_t id)
{
	struct ibv_sge s = {.addr = local, .length = length, .lkey = lkey};
	struct ibv_send_wr w = {
		.wr_id = id, .sg_list = &s, .num_sge = length > 0, .opcode = (enum ibv_wr_opcode)opcode, .send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(imm), .wr.rdma = {.remote_addr = remote, .rkey = rkey},
	};
	struct ibv_send_wr *bad;
	int rc = ibv_post_send((struct ibv_qp *)qp, &w, &bad);
	return rc > 0 ? -rc : rc;
}
