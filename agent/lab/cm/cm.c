//go:build linux && cgo && ibverbs && rdmacm

#include "cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cm_connection {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener; // of a side that answers
	struct rdma_cm_id *id;
};

static int last_error(void) { return errno > 0 ? -errno : -EIO; }

static int result(int rc) { return rc ? last_error() : 0; }

int cm_open(struct cm_connection **out)
{
	struct cm_connection *c = calloc(1, sizeof *c);
	int flags, err;

	if (!c)
		return -ENOMEM;
	c->channel = rdma_create_event_channel();
	if (c->channel && (flags = fcntl(c->channel->fd, F_GETFL)) >= 0 &&
	    fcntl(c->channel->fd, F_SETFL, flags | O_NONBLOCK) >= 0) {
		*out = c;
		return 0;
	}
	err = last_error();
	cm_close(c);
	return err;
}

static struct sockaddr_in sockaddr(const uint8_t address[4], uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	memcpy(&a.sin_addr, address, 4);
	return a;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int cm_wait(struct cm_connection *c, int timeout_ms, int *event, int *status)
{
	int64_t end = now_ms() + timeout_ms;
	struct rdma_cm_event *e;
	struct rdma_cm_id *late = NULL;

	while (rdma_get_cm_event(c->channel, &e)) {
		struct pollfd p = { .fd = c->channel->fd, .events = POLLIN };
		int64_t left = end - now_ms();

		if (errno != EAGAIN && errno != EINTR)
			return last_error();
		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
			return last_error();
	}
	*event = e->event;
	*status = e->status;
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		if (c->id)
			late = e->id; // one peer is enough
		else
			c->id = e->id;
	}
	rdma_ack_cm_event(e);
	if (!late)
		return 0;
	rdma_reject(late, NULL, 0);
	rdma_destroy_id(late);
	return cm_wait(c, (int)(end - now_ms()), event, status);
}

// expect waits for an event; any other one is an error.
static int expect(struct cm_connection *c, int want, int timeout_ms)
{
	int event, status, err = cm_wait(c, timeout_ms, &event, &status);

	if (err || event == want)
		return err;
	return status < 0 ? status : -EPROTO;
}

int cm_resolve(struct cm_connection *c, const uint8_t address[4], uint16_t port, int timeout_ms)
{
	struct sockaddr_in to = sockaddr(address, port);
	int err = result(rdma_create_id(c->channel, &c->id, NULL, RDMA_PS_TCP));

	if (!err)
		err = result(rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&to, timeout_ms));
	if (!err)
		err = expect(c, RDMA_CM_EVENT_ADDR_RESOLVED, timeout_ms);
	if (!err)
		err = result(rdma_resolve_route(c->id, timeout_ms));
	if (!err)
		err = expect(c, RDMA_CM_EVENT_ROUTE_RESOLVED, timeout_ms);
	return err;
}

int cm_listen(struct cm_connection *c, const uint8_t address[4], uint16_t port)
{
	struct sockaddr_in at = sockaddr(address, port);
	int err = result(rdma_create_id(c->channel, &c->listener, NULL, RDMA_PS_TCP));

	if (!err)
		err = result(rdma_bind_addr(c->listener, (struct sockaddr *)&at));
	if (!err)
		err = result(rdma_listen(c->listener, 1));
	return err;
}

const char *cm_event(int event) { return rdma_event_str((enum rdma_cm_event_type)event); }

const char *cm_device(struct cm_connection *c)
{
	return c->id && c->id->verbs ? ibv_get_device_name(c->id->verbs->device) : NULL;
}

static struct rdma_conn_param parameters(uint32_t qpn, int reads)
{
	return (struct rdma_conn_param){
		.qp_num = qpn, .responder_resources = (uint8_t)reads, .initiator_depth = (uint8_t)reads,
		.retry_count = 7, .rnr_retry_count = 7,
	};
}

int cm_connect(struct cm_connection *c, uint32_t qpn, int reads)
{
	struct rdma_conn_param p = parameters(qpn, reads);

	return result(rdma_connect(c->id, &p));
}

int cm_establish(struct cm_connection *c) { return result(rdma_establish(c->id)); }

int cm_accept(struct cm_connection *c, uint32_t qpn, int reads)
{
	struct rdma_conn_param p = parameters(qpn, reads);

	return result(rdma_accept(c->id, &p));
}

int cm_query(struct cm_connection *c, struct cm_attributes *out)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	struct ibv_qp_attr a[3] = { 0 };

	for (int i = 0; i < 3; i++) {
		int mask = 0;

		a[i].qp_state = states[i];
		if (rdma_init_qp_attr(c->id, &a[i], &mask))
			return last_error();
	}
	out->access = a[0].qp_access_flags;
	out->qpn = a[1].dest_qp_num;
	out->rq_psn = a[1].rq_psn;
	memcpy(out->gid, a[1].ah_attr.grh.dgid.raw, sizeof out->gid);
	out->gid_index = a[1].ah_attr.grh.sgid_index;
	out->mtu = a[1].path_mtu;
	out->min_rnr_timer = a[1].min_rnr_timer;
	out->reads = a[1].max_dest_rd_atomic;
	out->sq_psn = a[2].sq_psn;
	return 0;
}

int cm_disconnect(struct cm_connection *c) { return result(rdma_disconnect(c->id)); }

void cm_close(struct cm_connection *c)
{
	if (c->id)
		rdma_destroy_id(c->id);
	if (c->listener)
		rdma_destroy_id(c->listener);
	if (c->channel)
		rdma_destroy_event_channel(c->channel);
	free(c);
}
