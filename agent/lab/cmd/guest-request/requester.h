// A reliable connected queue pair that posts requests one after the other.
// Functions return 0 or a negative errno.
#ifndef ROCELINK_LAB_REQUESTER_H
#define ROCELINK_LAB_REQUESTER_H

#include <stdint.h>

struct requester;

struct requester_info {
	uint32_t qpn;
	uint8_t gid[16];
	int mtu; // enum ibv_mtu of the port
};

struct requester_peer {
	uint32_t qpn, rq_psn, sq_psn;
	uint8_t gid[16];
	int mtu;     // enum ibv_mtu
	int timeout; // codes of the local ACK timeout and the retries
	int retries, rnr_retries;
};

// requester_open takes the port's first RoCE v2 entry that is an IPv4 address.
int requester_open(const char *device, void *memory, uint64_t bytes, int depth, struct requester **, struct requester_info *);
int requester_connect(struct requester *, const struct requester_peer *);
// requester_post posts one request; opcode is an enum ibv_wr_opcode, imm is in
// host order.
int requester_post(struct requester *, uint64_t id, int opcode, void *local, uint32_t bytes, uint64_t remote, uint32_t rkey, uint32_t imm);
// requester_poll returns 1 for a completion, 0 for none.
int requester_poll(struct requester *, uint64_t *id, int *status);
const char *requester_status(int status);
void requester_close(struct requester *);

#endif
