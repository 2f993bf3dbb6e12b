//go:build verilator

#include "bench.h"

#include "Vtop.h"
#include "verilated.cpp"
#include "verilated_threads.cpp"

namespace {
struct bench {
    VerilatedContext context;
    Vtop *top;
};
} // namespace

void *axil_new(uint32_t seed) {
    bench *b = new bench;
    b->context.randReset(2);
    b->context.randSeed(static_cast<int>(seed));
    b->top = new Vtop(&b->context);
    return b;
}

void axil_free(void *v) {
    bench *b = static_cast<bench *>(v);
    delete b->top;
    delete b;
}

void axil_cycle(void *v, axil_pins *p) {
    Vtop &t = *static_cast<bench *>(v)->top;
    t.rst = p->rst;
    t.s_axil_awvalid = p->awvalid;
    t.s_axil_awaddr = p->awaddr;
    t.s_axil_wvalid = p->wvalid;
    t.s_axil_wdata = p->wdata;
    t.s_axil_wstrb = p->wstrb;
    t.s_axil_bready = p->bready;
    t.s_axil_arvalid = p->arvalid;
    t.s_axil_araddr = p->araddr;
    t.s_axil_rready = p->rready;
    t.bus_rdata = p->bus_rdata;
    t.clk = 0;
    t.eval();
    p->awready = t.s_axil_awready;
    p->wready = t.s_axil_wready;
    p->bvalid = t.s_axil_bvalid;
    p->bresp = t.s_axil_bresp;
    p->arready = t.s_axil_arready;
    p->rvalid = t.s_axil_rvalid;
    p->rdata = t.s_axil_rdata;
    p->rresp = t.s_axil_rresp;
    p->bus_write = t.bus_write;
    p->bus_address = t.bus_address;
    p->bus_wdata = t.bus_wdata;
    t.clk = 1;
    t.eval();
}
