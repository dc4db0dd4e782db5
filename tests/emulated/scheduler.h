// SPDX-License-Identifier: MIT
// Private to the emulation: the threads of the running blocks, and whose turn it is. A thread runs
// until it waits; the next one is chosen at random, so that code that relies on an order that is
// not guaranteed fails soon. A random number of blocks runs at a time, each in a place of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "block.h"
#include "fiber.h"

#define CONV_EMULATED_MOST_THREADS 1024
#define CONV_EMULATED_WARP 32
#define CONV_EMULATED_MOST_BLOCKS 8 // that run at a time

namespace emulated
{

// A copy to shared memory that a thread has requested, in its groups (cuda_pipeline.h).
struct pending_copy {
    void *to;
    const void *from;
    size_t size;
    unsigned group;
};

struct thread {
    struct fiber fiber;
    int place;  // of its block
    int number; // in the block
    dim3 index;
    bool returned;
    const char *waits; // the reason; null: it does not wait
    site where;
    size_t what;          // of several of the kind: which one
    thread *next_waiting; // at the same barrier in shared memory
    unsigned bucket;      // of turns
    unsigned groups;      // of copies, so far
    bool unfenced;        // met others since it ordered bulk copies after what they did
    std::vector<pending_copy> copies;
};

thread *self();
thread *thread_at(int number); // of the running thread's block
int thread_count();            // of a block
int place();                   // of the running thread's block, or of the block that begins
size_t dynamic_bytes();

// Lets another thread run, until one makes this thread ready.
void wait(const char *what, site where, size_t which);
void make_ready(thread *thread);

// Calls event(place of the caller's block, argument) at some time, while threads wait or by turns
// with them.
void happen_later(void (*event)(int place, int argument), int argument);

// A number of the sequence that depends on the launch and emulated_seed() alone.
uint64_t draw();
void fill_with_noise(void *memory, size_t size);

// Ends the launch from within a thread. The first message stays.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format, ...);
// The same for callers that can return.
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

// The parts of the emulation as a block begins, as one of its threads returns. The latter is true
// if it was the block's last.
void open_block(int threads);
bool note_return(thread *thread);

} // namespace emulated
