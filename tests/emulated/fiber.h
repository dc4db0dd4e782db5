// SPDX-License-Identifier: MIT
// Stacks that one system thread switches between, announced to the sanitizers. To the thread
// sanitizer each is a thread of its own and a switch is no synchronisation, so that it finds races
// of CUDA threads.
#pragma once

#include <cstddef>

namespace emulated
{

struct fiber {
    void *stack_pointer; // of a fiber that does not run
    char *stack;         // null: the system thread's own
    size_t stack_size;
    const void *asan_stack; // required by the sanitizers
    size_t asan_size;
    void *tsan;
};

// The system thread itself.
void adopt_fiber(fiber *fiber);
// `entry` must not return. False if there is no memory.
bool make_fiber(fiber *fiber, void (*entry)());
void free_fiber(fiber *fiber);
void switch_fiber(fiber *from, fiber *to);

// For the thread sanitizer alone: the caller acts as a phantom, which has no stack, until it calls
// this with null.
void make_phantom(fiber *phantom); // once
void impersonate(fiber *phantom);

// For the thread sanitizer: everything before announce(key) has happened before everything after
// observe(key).
void announce(const void *key);
void observe(const void *key);

} // namespace emulated
