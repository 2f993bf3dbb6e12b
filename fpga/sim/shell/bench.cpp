//go:build verilator

#include "bench.h"

#include <cstring>

#include "Vtop.h"
#include "verilated.cpp"
#include "verilated_threads.cpp"

namespace {
struct bench {
    VerilatedContext context;
    Vtop *top;
};
} // namespace

void *shell_new(uint32_t seed) {
    bench *b = new bench;
    b->context.randReset(2);
    b->context.randSeed(static_cast<int>(seed));
    b->top = new Vtop(&b->context);
    return b;
}

void shell_free(void *v) {
    bench *b = static_cast<bench *>(v);
    delete b->top;
    delete b;
}

void shell_cycle(void *v, shell_pins *p) {
    Vtop &t = *static_cast<bench *>(v)->top;
    t.rst = p->rst;
    t.link_up = p->link_up;
    t.boot = p->boot;
    t.s_axil_awvalid = p->awvalid;
    t.s_axil_awaddr = p->awaddr;
    t.s_axil_wvalid = p->wvalid;
    t.s_axil_wdata = p->wdata;
    t.s_axil_wstrb = p->wstrb;
    t.s_axil_bready = p->bready;
    t.s_axil_arvalid = p->arvalid;
    t.s_axil_araddr = p->araddr;
    t.s_axil_rready = p->rready;
    t.s_axis_tvalid = p->in.valid;
    t.s_axis_tkeep = p->in.keep;
    t.s_axis_tlast = p->in.last;
    t.s_axis_tuser = p->in.user;
    if (p->in.valid) std::memcpy(t.s_axis_tdata.data(), p->in.data, 64);
    t.m_axis_tready = p->out.ready;
    t.s_source_tvalid = 0;
    t.s_source_lossy = 0;
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
    p->out.valid = t.m_axis_tvalid;
    p->out.keep = t.m_axis_tkeep;
    p->out.last = t.m_axis_tlast;
    p->out.user = t.m_axis_tuser;
    if (t.m_axis_tvalid) std::memcpy(p->out.data, t.m_axis_tdata.data(), 64);
    p->answered_arp = t.answered_arp;
    p->answered_echo = t.answered_echo;
    p->unanswered = t.unanswered;
    p->overrun = t.overrun;
    t.clk = 1;
    t.eval();
}
