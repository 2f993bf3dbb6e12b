//go:build linux && cgo && ibverbs

#include "requester.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

struct requester {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int gid_index;
};

static int last_error(void) { return errno > 0 ? -errno : -EIO; }

static int open_device(struct requester *r, const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (!list)
		return last_error();
	for (int i = 0; i < n && !r->context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			r->context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return r->context ? 0 : -ENODEV;
}

static int choose_gid(struct requester *r, uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entries[64];
	ssize_t n = ibv_query_gid_table(r->context, entries, 64, 0);

	if (n < 0)
		return (int)n;
	for (ssize_t i = 0; i < n; i++) {
		if (entries[i].gid_type != IBV_GID_TYPE_ROCE_V2 || memcmp(entries[i].gid.raw, mapped, sizeof mapped))
			continue;
		r->gid_index = (int)entries[i].gid_index;
		memcpy(gid, entries[i].gid.raw, 16);
		return 0;
	}
	return -EADDRNOTAVAIL;
}

int requester_open(const char *device, void *memory, uint64_t bytes, int depth, struct requester **out, struct requester_info *info)
{
	struct requester *r = calloc(1, sizeof *r);
	struct ibv_port_attr port;
	int err;

	if (!r)
		return -ENOMEM;
	err = open_device(r, device);
	if (!err)
		err = choose_gid(r, info->gid);
	if (!err)
		err = -ibv_query_port(r->context, 1, &port);
	if (!err && !(r->pd = ibv_alloc_pd(r->context)))
		err = last_error();
	if (!err && !(r->mr = ibv_reg_mr(r->pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE)))
		err = last_error();
	if (!err && !(r->cq = ibv_create_cq(r->context, depth, NULL, NULL, 0)))
		err = last_error();
	if (!err) {
		struct ibv_qp_init_attr init = {
			.send_cq = r->cq, .recv_cq = r->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
			.cap = { .max_send_wr = (uint32_t)depth, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1 },
		};
		if (!(r->qp = ibv_create_qp(r->pd, &init)))
			err = last_error();
	}
	if (!err) {
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		err = -ibv_modify_qp(r->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	}
	if (err) {
		requester_close(r);
		return err;
	}
	info->qpn = r->qp->qp_num;
	info->mtu = port.active_mtu;
	*out = r;
	return 0;
}

int requester_connect(struct requester *r, const struct requester_peer *p)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = (enum ibv_mtu)p->mtu, .dest_qp_num = p->qpn, .rq_psn = p->rq_psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = (uint8_t)r->gid_index, .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = p->sq_psn, .timeout = (uint8_t)p->timeout,
		.retry_cnt = (uint8_t)p->retries, .rnr_retry = (uint8_t)p->rnr_retries, .max_rd_atomic = 4,
	};
	int err;

	memcpy(rtr.ah_attr.grh.dgid.raw, p->gid, 16);
	err = ibv_modify_qp(r->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!err)
		err = ibv_modify_qp(r->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	return -err;
}

int requester_post(struct requester *r, uint64_t id, int opcode, void *local, uint32_t bytes, uint64_t remote, uint32_t rkey, uint32_t imm)
{
	struct ibv_sge sge = { .addr = (uintptr_t)local, .length = bytes, .lkey = r->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = (enum ibv_wr_opcode)opcode, .sg_list = &sge, .num_sge = bytes ? 1 : 0,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(imm),
		.wr.rdma = { .remote_addr = remote, .rkey = rkey },
	};
	struct ibv_send_wr *bad;

	return -ibv_post_send(r->qp, &wr, &bad);
}

int requester_poll(struct requester *r, uint64_t *id, int *status)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(r->cq, 1, &wc);

	if (n < 0)
		return -EIO;
	if (n == 1) {
		*id = wc.wr_id;
		*status = wc.status;
	}
	return n;
}

const char *requester_status(int status) { return ibv_wc_status_str((enum ibv_wc_status)status); }

void requester_close(struct requester *r)
{
	if (r->qp)
		ibv_destroy_qp(r->qp);
	if (r->cq)
		ibv_destroy_cq(r->cq);
	if (r->mr)
		ibv_dereg_mr(r->mr);
	if (r->pd)
		ibv_dealloc_pd(r->pd);
	if (r->context)
		ibv_close_device(r->context);
	free(r);
}
