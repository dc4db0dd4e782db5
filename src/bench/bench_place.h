// SPDX-License-Identifier: MIT
// Memory and timed work at one place: on cores of the CPU, or on a CUDA device. What is timed
// begins with cold caches. All of it belongs to one thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/stencil/stencil.h"

struct conv_bench_place;

// Work that is timed. On the CPU `run` is called for each of `tasks` tasks, by several threads at
// once; on CUDA once, and queues launches into `stream`.
struct conv_bench_work {
    enum conv_status (*run)(void *context, int worker, int task, void *stream);
    void *context;
    int tasks;
    const char *name; // of the kernel, for messages
    // CPU: what is flushed from the caches before.
    struct {
        const uint8_t *data;
        size_t bytes;
    } cold[2];
};

// Messages say that `doing` failed. All report CONV_ERR_MEMORY or CONV_ERR_DEVICE.
struct conv_bench_place_ops {
    // `number`: threads, or CUDA's ordinal.
    enum conv_status (*open)(struct conv_bench_place **place, int number, struct conv_err *err);
    void (*close)(struct conv_bench_place *place); // after all of its memory; NULL is fine
    // CUDA: CONV_ERR_LIMIT if `bytes` are not free: a call of cudaMalloc that fails may take
    // long, and one that succeeds may leave other processes too little. `what` begins the message.
    // NULL on the CPU.
    enum conv_status (*check_free)(size_t bytes, const char *what, struct conv_err *err);
    enum conv_status (*take)(uint8_t **memory, size_t bytes, const char *doing,
                             struct conv_err *err);
    void (*release)(uint8_t *memory, size_t bytes); // NULL is fine
    enum conv_status (*copy_in)(uint8_t *to, const void *from, size_t bytes, const char *doing,
                                struct conv_err *err);
    enum conv_status (*copy_out)(void *to, const uint8_t *from, size_t bytes, struct conv_err *err);
    // Copies between the place's memory, untimed.
    enum conv_status (*move)(uint8_t *to, const uint8_t *from, size_t bytes, struct conv_err *err);
    // CUDA: makes a plan ready in plan_bytes() bytes of the place's memory. NULL on the CPU.
    size_t (*plan_bytes)(void);
    enum conv_status (*upload_plan)(struct conv_stencil_plan *plan, uint8_t *memory,
                                    struct conv_err *err);

    enum conv_status (*run)(struct conv_bench_place *place, const struct conv_bench_work *work,
                            uint64_t *ns, struct conv_err *err);
    // The yardsticks: a copy, and multiply-adds of float32 in registers alone, of which *flops
    // counts two each. `out` has room for one float.
    enum conv_status (*copy)(struct conv_bench_place *place, uint8_t *to, const uint8_t *from,
                             size_t bytes, uint64_t *ns, struct conv_err *err);
    enum conv_status (*fma)(struct conv_bench_place *place, uint8_t *out, double *flops,
                            uint64_t *ns, struct conv_err *err);
};

extern const struct conv_bench_place_ops conv_bench_place_cpu;
