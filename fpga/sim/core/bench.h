// What the core's C++ and Go share.
#ifndef ROCELINK_BENCH_H
#define ROCELINK_BENCH_H

#include <stdint.h>

typedef struct {
    int kind;     // 0 always ready, 1 with random pauses, 2 a wire's rate, 3 never ready
    int pause;    // of 256 cycles
    int64_t rate; // of the wire, in 1/1000 byte a cycle
} bench_sink;

typedef struct {
    uint64_t first, last; // cycles of its beats
    uint32_t length, beats, error;
} bench_frame;

typedef struct {
    uint64_t gaps;     // no beat was offered inside a frame
    uint64_t unstable; // a beat that was offered changed before it was taken
    uint64_t keep;     // byte enables that are not a run from the first byte
} bench_faults;

#ifdef __cplusplus
extern "C" {
#endif
void *bench_new(uint32_t seed);
void bench_free(void *b);
void bench_reset(void *b);
void bench_run(void *b, int cycles);
uint64_t bench_cycle(void *b);
void bench_write(void *b, uint32_t address, uint32_t value);
uint32_t bench_read(void *b, uint32_t address);
void bench_set_sink(void *b, bench_sink s);
void bench_link(void *b, int up);
void bench_receive(void *b, const uint8_t *frame, int n, int pause);
int bench_queued(void *b);
void bench_source(void *b, const uint8_t *frame, int n, int pause);
void bench_source_lossy(void *b, int lossy);
int bench_source_queued(void *b);
int bench_frames(void *b);
int bench_bytes(void *b);
void bench_take(void *b, bench_frame *frames, uint8_t *bytes);
bench_faults bench_look(void *b);
#ifdef __cplusplus
}
#endif

#endif
