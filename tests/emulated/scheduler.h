// SPDX-License-Identifier: MIT
// Inside of the emulation: the threads of the block that runs, and whose turn it is. A thread goes
// on until it waits; who is next is drawn by lot, so that an order that nothing guarantees does not
// hold for long.
#ifndef CONV_EMULATED_SCHEDULER_H
#define CONV_EMULATED_SCHEDULER_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "block.h"
#include "fiber.h"

#define CONV_EMULATED_MOST_THREADS 1024
#define CONV_EMULATED_WARP 32

namespace emulated
{

// A copy to shared memory that a thread has asked for, in its groups (cuda_pipeline.h).
struct pending_copy {
    void *to;
    const void *from;
    size_t size;
    unsigned group;
};

struct thread {
    struct fiber fiber;
    int number;
    dim3 index;
    bool returned;
    const char *waits; // for what; null: it does not wait
    site where;
    size_t what;          // of several of the kind: which one
    thread *next_waiting; // at the same barrier in shared memory
    uint64_t priority;
    unsigned groups; // of copies, so far
    std::vector<pending_copy> copies;
};

thread *self();
thread *thread_at(int number);
int thread_count(); // of the block
size_t dynamic_bytes();

// Lets another one run, until somebody makes this one ready.
void wait(const char *what, site where, size_t which);
void make_ready(thread *thread);

// Calls event(argument) at some time, while threads wait or by turns with them.
void happen_later(void (*event)(int argument), int argument);

// A number of the sequence that depends on the launch and emulated_seed() alone.
uint64_t draw();
void fill_with_noise(void *memory, size_t size);

// Ends the launch from within a thread. The first message stays.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format, ...);
// The same, for who can still return.
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

// The parts of the emulation as a block begins, as one of its threads returns.
void open_block(int threads);
void note_return(thread *thread);

} // namespace emulated

#endif
