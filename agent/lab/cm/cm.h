// One connection of the RDMA connection manager, without a queue pair of its own.
// Functions return 0 or a negative errno. Every wait is bounded.
#ifndef ROCELINK_LAB_CM_H
#define ROCELINK_LAB_CM_H

#include <stdint.h>

struct cm_connection;

// What the manager says a queue pair must be made of.
struct cm_attributes {
	unsigned access;   // IBV_ACCESS_*
	uint32_t qpn;      // the peer's
	uint32_t rq_psn, sq_psn;
	uint8_t gid[16];   // the peer's
	int gid_index;     // ours
	int mtu;           // enum ibv_mtu
	int min_rnr_timer; // code
	int reads;         // that the peer may have outstanding
};

int cm_open(struct cm_connection **);
// cm_resolve finds the device that leads to an address, and the way; cm_listen
// waits for no one yet. The port is in host order.
int cm_resolve(struct cm_connection *, const uint8_t address[4], uint16_t port, int timeout_ms);
int cm_listen(struct cm_connection *, const uint8_t address[4], uint16_t port);
// cm_wait takes the next event (enum rdma_cm_event_type); status is 0, a negative
// errno, or the reason of a rejection. -ETIMEDOUT: there was none.
int cm_wait(struct cm_connection *, int timeout_ms, int *event, int *status);
const char *cm_event(int event);
// cm_device is the RDMA device, NULL before there is a way or a request.
const char *cm_device(struct cm_connection *);
int cm_connect(struct cm_connection *, uint32_t qpn, int reads);
int cm_establish(struct cm_connection *);
int cm_accept(struct cm_connection *, uint32_t qpn, int reads);
int cm_query(struct cm_connection *, struct cm_attributes *);
int cm_disconnect(struct cm_connection *);
void cm_close(struct cm_connection *);

#endif
