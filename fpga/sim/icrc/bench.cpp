//go:build verilator

#include "Vtop.h"
#include <cstdint>
#include <cstring>

#include "verilated.cpp"
#include "verilated_threads.cpp"

namespace {
void tick(Vtop *t) {
    t->clk = 0;
    t->eval();
    t->clk = 1;
    t->eval();
}

void beat(Vtop *t, const uint8_t *p, uint32_t len, uint32_t at) {
    uint32_t n = len - at < 64 ? len - at : 64;
    uint8_t b[64] = {};
    std::memcpy(b, p + at, n);
    std::memcpy(t->s_data.data(), b, 64);
    t->s_valid = 1;
    t->s_first = at == 0;
    t->s_last = at + 64 >= len;
    t->s_tail = n >> 2 & 15;
}

uint32_t next(uint32_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
}
} // namespace

extern "C" {

void *icrc_new(void) {
    Vtop *t = new Vtop;
    t->rst = 1;
    t->s_valid = 0;
    for (int i = 0; i < 20; i++) tick(t);
    t->rst = 0;
    return t;
}

void icrc_free(void *p) { delete static_cast<Vtop *>(p); }

int icrc_run(void *p, const uint8_t *in, const uint32_t *lens, int frames, uint32_t seed, int pause,
             uint8_t *out, uint32_t *outlens, int room) {
    Vtop *t = static_cast<Vtop *>(p);
    int frame = 0, done = 0;
    uint32_t at = 0, used = 0, got = 0;
    int idle = 0;
    while (idle < 64) {
        t->s_valid = 0;
        idle++;
        if (frame < frames && int(next(&seed) & 255) >= pause) {
            beat(t, in, lens[frame], at);
            at += 64;
            if (at >= lens[frame]) {
                in += lens[frame++];
                at = 0;
            }
            idle = 0;
        }
        if (frame < frames) idle = 0;
        tick(t);
        if (t->m_valid) {
            uint32_t n = t->m_last ? 4u * t->m_tail + 2 : 64;
            if (int(used + got + n) > room || done > frames || (t->m_first != 0) != (got == 0)) return -1;
            std::memcpy(out + used + got, t->m_data.data(), n);
            got += n;
            if (t->m_last) {
                outlens[done++] = got;
                used += got;
                got = 0;
            }
        }
    }
    return got ? -1 : done;
}

void icrc_reset(void *p, const uint8_t *in, uint32_t len, int cut, int *after) {
    Vtop *t = static_cast<Vtop *>(p);
    for (int i = 0; i < cut && uint32_t(64 * i) < len; i++) {
        beat(t, in, len, 64 * i);
        tick(t);
    }
    t->s_valid = 0;
    t->rst = 1;
    for (int i = 0; i < 16; i++) tick(t);
    t->rst = 0;
    *after = 0;
    for (int i = 0; i < 64; i++) {
        tick(t);
        *after += t->m_valid;
    }
}
}
