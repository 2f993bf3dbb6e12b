// The pins of rl_axil during one cycle.
#ifndef ROCELINK_AXIL_H
#define ROCELINK_AXIL_H

#include <stdint.h>

typedef struct {
    // driven
    uint32_t rst, awvalid, awaddr, wvalid, wdata, wstrb, bready, arvalid, araddr, rready, bus_rdata;
    // seen before the clock's edge
    uint32_t awready, wready, bvalid, bresp, arready, rvalid, rdata, rresp, bus_write, bus_address, bus_wdata;
} axil_pins;

#ifdef __cplusplus
extern "C" {
#endif
void *axil_new(uint32_t seed);
void axil_free(void *b);
void axil_cycle(void *b, axil_pins *p);
#ifdef __cplusplus
}
#endif

#endif
