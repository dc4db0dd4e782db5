// SPDX-License-Identifier: MIT
#include "scheduler.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>

#include "../support/random.h"
#include "bulk.h"
#include "launch.h"

namespace emulated
{

// Threads and events that can continue, by random keys: the smallest key is next. Small: a block
// has a thousand of them.
struct turn {
    uint64_t key;
    uint32_t who; // number of a thread; from CONV_EMULATED_MOST_THREADS on, a place in now.events
    bool operator<(const turn &other) const
    {
        return key > other.key; // the standard's heaps have the largest on top
    }
};

struct event {
    void (*happen)(int);
    int argument;
};

// How keys are drawn; each way finds different mistakes.
enum order {
    EACH_TURN, // at each turn: all advance at about the same speed
    BY_THREAD, // once per thread: some are fast, others starve
    BY_WARP,   // once per warp, as for warps with roles
    ORDERS
};

static struct {
    thread threads[CONV_EMULATED_MOST_THREADS];
    int made; // of them, with stacks of their own
    struct fiber host;
    int count; // of the block
    thread *running;
    std::vector<turn> turns;
    std::vector<event> events;         // of the block
    std::vector<uint32_t> free_events; // places in it that are free again
    enum order order;
    const std::function<void()> *body;
    dim3 block_index;
    const launch_shape *shape;
    char *message;
    size_t room;
    bool failed;
} now;

static uint64_t seed, noise;

uint64_t draw()
{
    return random_bits(&noise);
}

void seed_order(uint64_t value)
{
    seed = value;
}

// --- calls of threads ----------------------------------------------------------------------------

thread *self()
{
    return now.running;
}

thread *thread_at(int number)
{
    return &now.threads[number];
}

int thread_count()
{
    return now.count;
}

size_t dynamic_bytes()
{
    return now.shape->bytes;
}

dim3 thread_index()
{
    return now.running->index;
}

dim3 block_index()
{
    return now.block_index;
}

dim3 block_shape()
{
    return now.shape->block;
}

dim3 grid_shape()
{
    return now.shape->grid;
}

int lane()
{
    return now.running->number % CONV_EMULATED_WARP;
}

// --- turns ---------------------------------------------------------------------------------------

static uint64_t draw_key(const thread *who)
{
    if (!who || now.order == EACH_TURN)
        return draw();
    // Now and then a thread's key is drawn again.
    thread *drawn = now.order == BY_WARP
                        ? &now.threads[who->number / CONV_EMULATED_WARP * CONV_EMULATED_WARP]
                        : &now.threads[who->number];
    if (draw() % 256 == 0)
        drawn->priority = draw();
    return (drawn->priority & ~(uint64_t)UINT32_MAX) | draw() >> 32;
}

static void add_turn(const turn &turn)
{
    now.turns.push_back(turn);
    std::push_heap(now.turns.begin(), now.turns.end());
}

void make_ready(thread *thread)
{
    thread->waits = nullptr;
    add_turn({draw_key(thread), (uint32_t)thread->number});
}

void happen_later(void (*event)(int argument), int argument)
{
    if (now.free_events.empty()) {
        now.free_events.push_back((uint32_t)now.events.size());
        now.events.push_back({});
    }
    uint32_t place = now.free_events.back();
    now.free_events.pop_back();
    now.events[place] = {event, argument};
    add_turn({draw_key(nullptr), CONV_EMULATED_MOST_THREADS + place});
}

// Switches to the next thread, or to the host if none can continue. Returns when it is the caller's
// turn.
static void pass_on()
{
    thread *me = now.running;
    while (!now.turns.empty()) {
        std::pop_heap(now.turns.begin(), now.turns.end());
        uint32_t who = now.turns.back().who;
        now.turns.pop_back();
        if (who >= CONV_EMULATED_MOST_THREADS) {
            uint32_t place = who - CONV_EMULATED_MOST_THREADS;
            event event = now.events[place];
            now.free_events.push_back(place);
            event.happen(event.argument);
            continue;
        }
        now.running = &now.threads[who];
        if (now.running != me)
            switch_fiber(me ? &me->fiber : &now.host, &now.running->fiber);
        return;
    }
    if (me) {
        now.running = nullptr;
        switch_fiber(&me->fiber, &now.host);
    }
}

void wait(const char *what, site where, size_t which)
{
    thread *me = now.running;
    me->waits = what;
    me->where = where;
    me->what = which;
    pass_on();
}

static const char key_start = 0, key_end = 0; // of a block, for the thread sanitizer

// A fiber is a thread of one block after the other.
static void be_threads()
{
    for (;;) {
        observe(&key_start);
        (*now.body)();
        announce(&key_end);
        now.running->returned = true;
        note_return(now.running);
        pass_on();
    }
}

// --- failures ------------------------------------------------------------------------------------

static void complain_with(const char *format, va_list arguments)
{
    if (now.failed)
        return;
    now.failed = true;
    int used = now.running ? snprintf(now.message, now.room,
                                      "block (%u,%u), thread (%u,%u): ", now.block_index.x,
                                      now.block_index.y, now.running->index.x, now.running->index.y)
                           : snprintf(now.message, now.room, "block (%u,%u): ", now.block_index.x,
                                      now.block_index.y);
    vsnprintf(now.message + used, now.room - (size_t)used, format, arguments);
}

void complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_with(format, arguments);
    va_end(arguments);
}

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain_with(format, arguments);
    va_end(arguments);
    thread *me = now.running;
    now.running = nullptr;
    for (;;) // the host gives the stack back
        switch_fiber(&me->fiber, &now.host);
}

// Called if no thread can continue although not all have returned: prints what each waits for.
static void complain_of_deadlock()
{
    char text[400] = "";
    size_t used = 0;
    for (int i = 0; i < now.count && used < sizeof text - 1;) {
        const thread *first = &now.threads[i];
        int end = i;
        while (end < now.count && now.threads[end].returned == first->returned &&
               (first->returned ||
                (now.threads[end].waits == first->waits && now.threads[end].what == first->what)))
            end++;
        if (!first->returned)
            used += (size_t)snprintf(
                text + used, sizeof text - used, "; threads %d to %d wait for %s (%s:%d, %zu)", i,
                end - 1, first->waits, first->where.file, first->where.line, first->what);
        i = end;
    }
    complain("deadlock%s", text);
}

// --- blocks --------------------------------------------------------------------------------------

static bool make_threads(int count)
{
    // Memory that grew while a thread runs would be that thread's for the thread sanitizer.
    now.turns.reserve(8 * CONV_EMULATED_MOST_THREADS);
    now.events.reserve(8 * CONV_EMULATED_MOST_THREADS);
    now.free_events.reserve(8 * CONV_EMULATED_MOST_THREADS);
    for (; now.made < count; now.made++)
        if (!make_fiber(&now.threads[now.made].fiber, be_threads))
            return false;
    return true;
}

// After a failure: stacks of unfinished threads cannot be reused.
static void free_threads()
{
    while (now.made > 0)
        free_fiber(&now.threads[--now.made].fiber);
    now.turns.clear();
}

static void run_block()
{
    dim3 shape = now.shape->block;
    open_block(now.count);
    now.events.clear();
    now.free_events.clear();
    for (int i = 0; i < now.count; i++) {
        thread *thread = &now.threads[i];
        unsigned number = (unsigned)i;
        thread->number = i;
        thread->index = {number % shape.x, number / shape.x % shape.y, number / shape.x / shape.y};
        thread->returned = false;
        thread->priority = draw();
        thread->groups = 0;
        thread->copies.clear();
    }
    for (int i = 0; i < now.count; i++)
        make_ready(&now.threads[i]);
    announce(&key_start);
    pass_on();
    observe(&key_end);
    bool all = true;
    for (int i = 0; i < now.count; i++)
        all = all && now.threads[i].returned;
    if (!all)
        complain_of_deadlock();
}

void run_launch(const char *name, const launch_shape &shape, const std::function<void()> &body,
                char *message, size_t room)
{
    message[0] = '\0';
    now.count = (int)(shape.block.x * shape.block.y * shape.block.z);
    now.body = &body;
    now.shape = &shape;
    now.message = message;
    now.room = room;
    now.failed = false;
    now.running = nullptr;
    uint64_t blocks = (uint64_t)shape.grid.x * shape.grid.y * shape.grid.z;
    // The order depends on the seed and on the shape of the launch.
    noise = seed;
    noise = draw() + blocks;
    noise = draw() + (uint64_t)now.count + shape.bytes * 1024;
    now.order = (enum order)(draw() % ORDERS);
    adopt_fiber(&now.host);
    if (!make_threads(now.count))
        complain("no memory for the stacks of %d threads", now.count);
    // One block after the other, in some order.
    uint64_t at = draw() % blocks, step = draw() % blocks + 1;
    while (std::gcd(step, blocks) != 1)
        step++;
    for (uint64_t i = 0; i < blocks && !now.failed; i++, at = (at + step) % blocks) {
        now.block_index = {(unsigned)(at % shape.grid.x),
                           (unsigned)(at / shape.grid.x % shape.grid.y),
                           (unsigned)(at / shape.grid.x / shape.grid.y)};
        run_block();
    }
    if (now.failed) {
        size_t used = strlen(message);
        snprintf(message + used, room - used, " [%s]", name);
        free_threads();
    }
}

} // namespace emulated
