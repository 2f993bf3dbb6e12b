// The pins of rl_shell during one cycle.
#ifndef ROCELINK_SHELL_H
#define ROCELINK_SHELL_H

#include <stdint.h>

// A beat of an AXI4-Stream.
typedef struct {
    uint8_t data[64];
    uint64_t keep;
    uint32_t valid, ready, last, user;
} shell_beat;

typedef struct {
    // driven
    uint32_t rst, link_up, boot;
    uint32_t awvalid, awaddr, wvalid, wdata, wstrb, bready, arvalid, araddr, rready;
    shell_beat in; // but for ready
    // seen before the clock's edge
    uint32_t awready, wready, bvalid, bresp, arready, rvalid, rdata, rresp;
    shell_beat out; // but for ready, which is driven
    uint64_t answered_arp, answered_echo, unanswered, overrun;
} shell_pins;

#ifdef __cplusplus
extern "C" {
#endif
void *shell_new(uint32_t seed);
void shell_free(void *b);
void shell_cycle(void *b, shell_pins *p);
#ifdef __cplusplus
}
#endif

#endif
