// SPDX-License-Identifier: MIT
#include "fiber.h"

#include <cstdint>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#if CONV_EMULATED_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if CONV_EMULATED_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_SIZE ((size_t)256 << 10)
#define GUARD_SIZE ((size_t)4096)
// Stacks begin at different offsets in their pages; otherwise they would compete for few lines of
// the caches.
#define OFFSETS 8
#define OFFSET ((size_t)512)

namespace emulated
{

// --- the switch itself ---------------------------------------------------------------------------

#ifdef __x86_64__

// Saves the registers that a function must preserve, and the stack pointer. swapcontext() would
// also make the system save the signal mask; with it the whole check takes three times as long.
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n"
    ".type emulated_switch, @function\n"
    "emulated_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size emulated_switch, . - emulated_switch\n");

// As emulated_switch leaves a stack: six registers, the address to go on at, and above it the
// address that `entry` would return to, on a boundary of 16 bytes less 8.
static void prepare_stack(fiber *fiber, void (*entry)())
{
    void **top = (void **)(fiber->stack + fiber->stack_size);
    *--top = nullptr;
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    fiber->stack_pointer = top;
}

static void switch_stack(fiber *from, fiber *to)
{
    emulated_switch(&from->stack_pointer, to->stack_pointer);
}

static void forget_stack(fiber *)
{
}

#else

static void prepare_stack(fiber *fiber, void (*entry)())
{
    ucontext_t *context = new ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = fiber->stack;
    context->uc_stack.ss_size = fiber->stack_size;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    fiber->stack_pointer = context;
}

static void switch_stack(fiber *from, fiber *to)
{
    if (!from->stack_pointer)
        from->stack_pointer = new ucontext_t;
    swapcontext((ucontext_t *)from->stack_pointer, (ucontext_t *)to->stack_pointer);
}

static void forget_stack(fiber *fiber)
{
    delete (ucontext_t *)fiber->stack_pointer;
}

#endif

// --- with the sanitizers -------------------------------------------------------------------------

static fiber *previous; // the fiber that has switched to the running one

// The first call on a stack after switching to it.
static void arrive()
{
#if CONV_EMULATED_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &previous->asan_stack, &previous->asan_size);
#endif
}

static void (*first_entry)();

static void start()
{
    arrive();
    first_entry();
}

void adopt_fiber(fiber *fiber)
{
    *fiber = {};
#if CONV_EMULATED_TSAN
    fiber->tsan = __tsan_get_current_fiber();
#endif
}

bool make_fiber(fiber *fiber, void (*entry)())
{
    static size_t made;
    first_entry = entry;
    *fiber = {};
    // Stacks grow downwards, to a page without access.
    void *map = mmap(nullptr, GUARD_SIZE + STACK_SIZE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    fiber->stack = (char *)map + GUARD_SIZE;
    fiber->stack_size = STACK_SIZE - made++ % OFFSETS * OFFSET;
    fiber->asan_stack = fiber->stack;
    fiber->asan_size = fiber->stack_size;
    if (mprotect(map, GUARD_SIZE, PROT_NONE)) {
        munmap(map, GUARD_SIZE + STACK_SIZE);
        return false;
    }
    prepare_stack(fiber, start);
#if CONV_EMULATED_TSAN
    fiber->tsan = __tsan_create_fiber(0);
#endif
    return true;
}

void free_fiber(fiber *fiber)
{
    if (!fiber->stack)
        return;
    munmap(fiber->stack - GUARD_SIZE, GUARD_SIZE + STACK_SIZE);
    forget_stack(fiber);
#if CONV_EMULATED_TSAN
    __tsan_destroy_fiber(fiber->tsan);
#endif
    *fiber = {};
}

void switch_fiber(fiber *from, fiber *to)
{
    previous = from;
#if CONV_EMULATED_ASAN
    void *fake_stack;
    __sanitizer_start_switch_fiber(&fake_stack, to->asan_stack, to->asan_size);
#endif
#if CONV_EMULATED_TSAN
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
    switch_stack(from, to);
#if CONV_EMULATED_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, &previous->asan_stack, &previous->asan_size);
#endif
}

void make_phantom(fiber *phantom)
{
#if CONV_EMULATED_TSAN
    if (!phantom->tsan)
        phantom->tsan = __tsan_create_fiber(0);
#else
    (void)phantom;
#endif
}

void impersonate(fiber *phantom)
{
#if CONV_EMULATED_TSAN
    static void *real;
    if (phantom)
        real = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(phantom ? phantom->tsan : real, __tsan_switch_to_fiber_no_sync);
#else
    (void)phantom;
#endif
}

void announce(const void *key)
{
#if CONV_EMULATED_TSAN
    __tsan_release((void *)key);
#else
    (void)key;
#endif
}

void observe(const void *key)
{
#if CONV_EMULATED_TSAN
    __tsan_acquire((void *)key);
#else
    (void)key;
#endif
}

} // namespace emulated
