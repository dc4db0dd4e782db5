// SPDX-License-Identifier: MIT
#include "bulk.h"

#include <cstring>

#include "scheduler.h"
#include "shared.h"

namespace emulated
{

#define MOST_BARRIERS 64
#define MOST_COPIES (1 << 16)
#define MOST_BYTES ((1 << 20) - 1) // that a barrier can count
#define GRAIN 16                   // of bulk copies

struct barrier {
    uint32_t address;
    uint32_t expected, missing; // arrivals
    int64_t bytes;              // announced and not landed
    uint32_t phase;
    thread *waiting;
    char keys[2]; // for the thread sanitizer: what has arrived in a phase
};

struct bulk {
    void *to;
    const void *from;
    uint32_t bytes;
    struct barrier *barrier;
};

struct bulk_state {
    struct barrier barriers[MOST_BARRIERS];
    int barrier_count;
    bulk copies[MOST_COPIES];
    int copy_count, landed_count;
    struct fiber engine; // the copying thread, for the thread sanitizer
};

static bulk_state blocks[CONV_EMULATED_MOST_BLOCKS];

// The pattern in memory where a barrier is: overwriting it is detected.
static uint64_t mark_of(uint32_t address)
{
    return 0x6d62617272696572 ^ address;
}

static barrier *find(uint32_t address)
{
    bulk_state &own = blocks[place()];
    const volatile uint64_t *memory = (const uint64_t *)shared_at(address, 8, 8);
    for (int i = 0; i < own.barrier_count; i++) {
        if (own.barriers[i].address != address)
            continue;
        if (*memory != mark_of(address))
            fail("the barrier at shared address %u was written over", address);
        return &own.barriers[i];
    }
    fail("no barrier was made at shared address %u", address);
}

void init_barrier(uint32_t address, uint32_t arrivals)
{
    bulk_state &own = blocks[place()];
    if (arrivals == 0 || arrivals > MOST_BYTES || own.barrier_count == MOST_BARRIERS)
        fail("a barrier of %u arrivals, the %dth", arrivals, own.barrier_count + 1);
    *(volatile uint64_t *)shared_at(address, 8, 8) = mark_of(address);
    own.barriers[own.barrier_count++] = {address, arrivals, arrivals, 0, 0, nullptr, {0, 0}};
}

static void end_phase_if_complete(barrier *barrier)
{
    if (barrier->missing || barrier->bytes)
        return;
    barrier->missing = barrier->expected;
    barrier->phase++;
    for (thread *thread = barrier->waiting; thread; thread = thread->next_waiting)
        make_ready(thread);
    barrier->waiting = nullptr;
}

static void arrive(barrier *barrier)
{
    if (barrier->missing == 0)
        fail("more than %u arrivals in a phase of the barrier at %u", barrier->expected,
             barrier->address);
    announce(&barrier->keys[barrier->phase % 2]);
    barrier->missing--;
}

void arrive_at(uint32_t address, uint32_t bytes)
{
    barrier *barrier = find(address);
    barrier->bytes += bytes;
    if (barrier->bytes > MOST_BYTES)
        fail("the barrier at %u cannot count %u bytes more", address, bytes);
    arrive(barrier);
    end_phase_if_complete(barrier);
}

void wait_for(uint32_t address, uint32_t parity)
{
    barrier *barrier = find(address);
    if (barrier->phase % 2 == parity) {
        self()->next_waiting = barrier->waiting;
        barrier->waiting = self();
        wait("a barrier in shared memory", {"address", (int)address}, barrier->phase);
    }
    self()->unfenced = true;
    observe(&barrier->keys[parity]);
}

// --- copies --------------------------------------------------------------------------------------

// The copy engine is a thread of its own for the thread sanitizer.
static void land(int place, int number)
{
    bulk_state &own = blocks[place];
    bulk *copy = &own.copies[number];
    barrier *barrier = copy->barrier;
    impersonate(&own.engine);
    observe(copy);
    memcpy(copy->to, copy->from, copy->bytes);
    announce(&barrier->keys[barrier->phase % 2]);
    impersonate(nullptr);
    own.landed_count++;
    barrier->bytes -= copy->bytes;
    end_phase_if_complete(barrier);
}

void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t address)
{
    bulk_state &own = blocks[place()];
    if (bytes == 0 || bytes % GRAIN)
        fail("a bulk copy of %u bytes", bytes);
    if (self()->unfenced)
        fail("a bulk copy without a fence after the thread has met others at a barrier");
    if (own.copy_count == MOST_COPIES)
        fail("more than %d bulk copies of a block", MOST_COPIES);
    check_global(from, bytes, GRAIN);
    bulk *copy = &own.copies[own.copy_count];
    *copy = {shared_at(to, bytes, GRAIN), from, bytes, find(address)};
    if (-copy->barrier->bytes + bytes > MOST_BYTES)
        fail("the barrier at %u cannot count %u bytes more", address, bytes);
    // From now on its content is undefined.
    fill_with_noise(copy->to, bytes);
    announce(copy);
    happen_later(land, own.copy_count++);
}

void fence_bulk()
{
    self()->unfenced = false;
}

void open_bulk()
{
    bulk_state &own = blocks[place()];
    own.barrier_count = own.copy_count = own.landed_count = 0;
    make_phantom(&own.engine);
}

void close_bulk()
{
    const bulk_state &own = blocks[place()];
    if (own.landed_count != own.copy_count)
        fail("the block returns while %d bulk copies are under way",
             own.copy_count - own.landed_count);
}

} // namespace emulated
