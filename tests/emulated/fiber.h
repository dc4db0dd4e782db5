// SPDX-License-Identifier: MIT
// Stacks that one system thread switches between, known to the sanitizers. The thread sanitizer
// takes each for a thread of its own, and a switch for no synchronisation: it finds what CUDA
// threads race for.
#ifndef CONV_EMULATED_FIBER_H
#define CONV_EMULATED_FIBER_H

#include <cstddef>

namespace emulated
{

struct fiber {
    void *stack_pointer; // of a fiber that does not run
    char *stack;         // null: the system thread's own
    size_t stack_size;
    const void *asan_stack; // what the sanitizers ask for
    size_t asan_size;
    void *tsan;
};

// The system thread itself.
void adopt_fiber(fiber *fiber);
// `entry` must not return. False if there is no memory.
bool make_fiber(fiber *fiber, void (*entry)());
void free_fiber(fiber *fiber);
void switch_fiber(fiber *from, fiber *to);

// For the thread sanitizer alone: who does something on behalf of somebody else, who has no stack,
// and is the caller again with null.
void make_phantom(fiber *phantom); // once
void impersonate(fiber *phantom);

// For the thread sanitizer: what has happened before announce(key) has happened before what comes
// behind observe(key).
void announce(const void *key);
void observe(const void *key);

} // namespace emulated

#endif
