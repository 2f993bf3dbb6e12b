//go:build verilator

#include "bench.h"
#ifdef ROCELINK_REALTIME
#include "Vrealtime.h"
using Top = Vrealtime;
#else
#include "Vtop.h"
using Top = Vtop;
#endif

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "verilated.cpp"
#include "verilated_threads.cpp"

namespace {

struct Random {
    uint32_t x;
    uint32_t next() {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        return x;
    }
    bool of256(int n) { return int(next() & 255) < n; }
};

struct Bench {
    Top top;
    Random random{1};
    uint64_t cycle = 0;

    // From the core.
    bench_sink sink{};
    int64_t credit = 0; // bytes in 1/1000 that the wire has time for
    bool ready = false;
    std::vector<uint8_t> bytes;
    std::vector<bench_frame> frames;
    bench_frame frame{};
    bool halfway = false;
    bool waits = false; // a beat was offered and not taken
    uint8_t offered[64];
    uint64_t offered_keep = 0;
    bool offered_last = false;
    bench_faults faults{};

    // To the core.
    std::deque<std::vector<uint8_t>> in;
    size_t in_at = 0;
    int in_pause = 0;

    // To the core's external source, which may let a beat wait.
    std::deque<std::vector<uint8_t>> source;
    size_t source_at = 0;
    int source_pause = 0;
    bool source_offers = false;

    void tick() {
        // What the MAC takes in this cycle.
        switch (sink.kind) {
        case 0: ready = true; break;
        case 1: ready = !random.of256(sink.pause); break;
        case 2:
            credit += sink.rate;
            if (credit > 64000) credit = 64000; // an idle wire saves nothing up
            ready = credit >= 0;
            break;
        default: ready = false;
        }
        top.m_axis_tready = ready;
        feed();
        offer();
        top.clk = 0;
        top.eval();
        look();
        if (source_offers && top.s_source_tready) {
            source_offers = false;
            source_at += 64;
            if (source_at >= source.front().size()) {
                source.pop_front();
                source_at = 0;
            }
        }
        top.clk = 1;
        top.eval();
        top.bus_write = 0;
        cycle++;
    }

    void feed() {
        top.s_axis_tvalid = 0;
        if (in.empty() || random.of256(in_pause)) return;
        const std::vector<uint8_t> &f = in.front();
        size_t n = f.size() - in_at;
        if (n > 64) n = 64;
        uint8_t b[64];
        // A MAC drives what it likes behind the end.
        std::memset(b, int(random.next()), 64);
        std::memcpy(b, f.data() + in_at, n);
        std::memcpy(top.s_axis_tdata.data(), b, 64);
        top.s_axis_tkeep = n == 64 ? ~0ull : (1ull << n) - 1;
        top.s_axis_tlast = in_at + n == f.size();
        top.s_axis_tuser = 0;
        top.s_axis_tvalid = 1;
        in_at += n;
        if (in_at == f.size()) {
            in.pop_front();
            in_at = 0;
        }
    }

    // offer holds a beat of the source until it is taken.
    void offer() {
        if (source_offers) return;
        top.s_source_tvalid = 0;
        if (source.empty() || random.of256(source_pause)) return;
        const std::vector<uint8_t> &f = source.front();
        size_t n = f.size() - source_at;
        if (n > 64) n = 64;
        uint8_t b[64];
        std::memset(b, int(random.next()), 64);
        std::memcpy(b, f.data() + source_at, n);
        std::memcpy(top.s_source_tdata.data(), b, 64);
        top.s_source_tkeep = n == 64 ? ~0ull : (1ull << n) - 1;
        top.s_source_tlast = source_at + 64 >= f.size();
        top.s_source_tvalid = 1;
        source_offers = true;
    }

    // look is at the outputs as they are before the clock's edge.
    void look() {
        bool valid = top.m_axis_tvalid;
        if (waits && (!valid || top.m_axis_tkeep != offered_keep || bool(top.m_axis_tlast) != offered_last ||
                      std::memcmp(offered, top.m_axis_tdata.data(), 64) != 0))
            faults.unstable++;
        if (halfway && ready && !valid) faults.gaps++;
        waits = valid && !ready;
        if (!valid) return;
        std::memcpy(offered, top.m_axis_tdata.data(), 64);
        offered_keep = top.m_axis_tkeep;
        offered_last = top.m_axis_tlast;
        if (!ready) return;
        int n = 0;
        while (n < 64 && offered_keep >> n & 1) n++;
        if (offered_keep != (n == 64 ? ~0ull : (1ull << n) - 1) || (!offered_last && n != 64)) faults.keep++;
        if (!halfway) {
            frame = bench_frame{};
            frame.first = cycle;
        }
        frame.length += n;
        frame.beats++;
        frame.error |= top.m_axis_tuser;
        bytes.insert(bytes.end(), offered, offered + n);
        halfway = !offered_last;
        credit -= 1000 * n;
        if (offered_last) {
            frame.last = cycle;
            frames.push_back(frame);
            credit -= 1000 * (24 + (frame.length < 60 ? 60 - frame.length : 0));
        }
    }
};

Bench *of(void *b) { return static_cast<Bench *>(b); }

} // namespace

extern "C" {

void *bench_new(uint32_t seed) {
    Bench *b = new Bench;
    b->random.x = seed | 1;
    b->top.link_up = 1;
    b->top.boot = seed;
    b->top.rst = 1;
    b->top.bus_write = 0;
    b->tick();
    b->top.rst = 0;
    return b;
}

void bench_free(void *p) { delete of(p); }

void bench_reset(void *p) {
    Bench *b = of(p);
    // A frame that was cut off is none.
    b->bytes.resize(size_t(bench_bytes(p)));
    b->halfway = b->waits = false;
    b->top.rst = 1;
    b->tick();
    b->top.rst = 0;
}

void bench_run(void *p, int cycles) {
    for (int i = 0; i < cycles; i++) of(p)->tick();
}

uint64_t bench_cycle(void *p) { return of(p)->cycle; }

void bench_write(void *p, uint32_t address, uint32_t value) {
    Bench *b = of(p);
    b->top.bus_address = address;
    b->top.bus_wdata = value;
    b->top.bus_write = 1;
    b->tick();
}

uint32_t bench_read(void *p, uint32_t address) {
    Bench *b = of(p);
    b->top.bus_address = address;
    b->tick();
    b->tick();
    return b->top.bus_rdata;
}

void bench_set_sink(void *p, bench_sink s) { of(p)->sink = s; }

void bench_link(void *p, int up) { of(p)->top.link_up = up; }

void bench_receive(void *p, const uint8_t *frame, int n, int pause) {
    Bench *b = of(p);
    b->in.emplace_back(frame, frame + n);
    b->in_pause = pause;
}

void bench_source(void *p, const uint8_t *frame, int n, int pause) {
    Bench *b = of(p);
    b->source.emplace_back(frame, frame + n);
    b->source_pause = pause;
}

void bench_source_lossy(void *p, int lossy) { of(p)->top.s_source_lossy = lossy; }

int bench_source_queued(void *p) { return int(of(p)->source.size()); }

int bench_queued(void *p) { return int(of(p)->in.size()); }

int bench_frames(void *p) { return int(of(p)->frames.size()); }
int bench_bytes(void *p) {
    Bench *b = of(p);
    return int(b->bytes.size()) - (b->halfway ? int(b->frame.length) : 0);
}

void bench_take(void *p, bench_frame *frames, uint8_t *bytes) {
    Bench *b = of(p);
    size_t n = size_t(bench_bytes(p));
    std::memcpy(frames, b->frames.data(), b->frames.size() * sizeof(bench_frame));
    std::memcpy(bytes, b->bytes.data(), n);
    b->frames.clear();
    b->bytes.erase(b->bytes.begin(), b->bytes.begin() + long(n));
}

bench_faults bench_look(void *p) { return of(p)->faults; }
}
