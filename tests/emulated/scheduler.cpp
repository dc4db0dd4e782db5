// SPDX-License-Identifier: MIT
#include "scheduler.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "../support/random.h"
#include "bulk.h"
#include "launch.h"
#include "shared.h"

namespace emulated
{

#define MOST_FIBERS 2048 // of all blocks that run at a time
// Under the thread sanitizer, which takes twice as long with more and finds no more, one block.
#define MOST_PLACES (CONV_EMULATED_TSAN ? 1 : CONV_EMULATED_MOST_BLOCKS)
#define YIELDS 8              // one of so many atomic operations lets other threads run
#define MOST_LOOKS (1u << 20) // while no thread becomes ready

#define BUCKETS 64                   // of turns
#define MOST_TURNS (8 * MOST_FIBERS) // at a time

struct event {
    void (*happen)(int, int);
    int place, argument;
};

// How buckets are drawn; each way finds different mistakes.
enum order {
    EACH_TURN, // there is one: all advance at about the same speed
    BY_THREAD, // once per thread: some are fast, others starve
    BY_WARP,   // once per warp, as for warps with roles
    BY_BLOCK,  // once per block
    ORDERS
};

// Of a block that runs. The keys are for the thread sanitizer.
struct block_place {
    dim3 index;
    char start, end;
};

static struct {
    thread threads[MOST_FIBERS]; // of the block in place i: `count` from i * count on
    int made;                    // of them, with stacks of their own
    struct fiber host;
    int count; // of a block
    block_place places[CONV_EMULATED_MOST_BLOCKS];
    int place; // of the block that begins or has ended, for the host
    bool ended;
    thread *running;
    unsigned looks; // since a thread has become ready
    // Threads and events that can continue, in buckets: one from the first bucket that is not empty
    // is next, any of them. A queue by keys took half of the time of a check.
    uint32_t turns[BUCKETS][MOST_TURNS]; // of `threads`; from MOST_FIBERS on, one of `events`
    int ready[BUCKETS];                  // how many are in each
    uint64_t filled;                     // a bit for each that is not empty
    std::vector<uint32_t> looking;       // threads that look for what another writes
    std::vector<event> events;
    std::vector<uint32_t> free_events; // places in it that are free again
    enum order order;
    const launch_body *body;
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
    return &now.threads[now.running->place * now.count + number];
}

int thread_count()
{
    return now.count;
}

int place()
{
    return now.running ? now.running->place : now.place;
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
    return now.places[now.running->place].index;
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

// Of a thread; null: of an event.
static unsigned draw_bucket(const thread *who)
{
    if (now.order == EACH_TURN)
        return 0;
    if (!who)
        return random_below(&noise, BUCKETS);
    // Now and then a thread's bucket is drawn again.
    int share = now.order == BY_THREAD ? 1 : now.order == BY_WARP ? CONV_EMULATED_WARP : now.count;
    thread *drawn = &now.threads[who->place * now.count + who->number / share * share];
    if (random_below(&noise, 256) == 0)
        drawn->bucket = random_below(&noise, BUCKETS);
    return drawn->bucket;
}

static void add_turn(unsigned bucket, uint32_t who)
{
    now.turns[bucket][now.ready[bucket]++] = who;
    now.filled |= (uint64_t)1 << bucket;
}

void make_ready(thread *thread)
{
    now.looks = 0;
    thread->waits = nullptr;
    add_turn(draw_bucket(thread), (uint32_t)(thread - now.threads));
}

void happen_later(void (*event)(int place, int argument), int argument)
{
    if (now.free_events.empty()) {
        if (now.events.size() == MOST_TURNS - MOST_FIBERS)
            fail("more than %zu events at a time", now.events.size());
        now.free_events.push_back((uint32_t)now.events.size());
        now.events.push_back({});
    }
    uint32_t number = now.free_events.back();
    now.free_events.pop_back();
    now.events[number] = {event, place(), argument};
    add_turn(draw_bucket(nullptr), MOST_FIBERS + number);
}

static void go_to_host()
{
    thread *me = now.running;
    now.running = nullptr;
    switch_fiber(&me->fiber, &now.host);
}

// The next thread or event; false if nothing can continue. By buckets alone, a thread that looks
// for what another writes could keep that one waiting.
static bool next_turn(uint32_t *who)
{
    size_t looking = now.looking.size();
    if (looking > 0 && (!now.filled || draw() % 4 == 0)) {
        std::swap(now.looking[draw() % looking], now.looking.back());
        *who = now.looking.back();
        now.looking.pop_back();
        return true;
    }
    if (!now.filled)
        return false;
    int bucket = __builtin_ctzll(now.filled);
    uint32_t *turns = now.turns[bucket];
    uint32_t *next = &turns[random_below(&noise, (unsigned)now.ready[bucket])];
    *who = *next;
    *next = turns[--now.ready[bucket]];
    if (now.ready[bucket] == 0)
        now.filled &= now.filled - 1;
    return true;
}

// Switches to the next thread, or to the host if none can continue. Returns when it is the caller's
// turn.
static void pass_on()
{
    thread *me = now.running;
    uint32_t who;
    while (next_turn(&who)) {
        if (who >= MOST_FIBERS) {
            event event = now.events[who - MOST_FIBERS];
            now.free_events.push_back(who - MOST_FIBERS);
            event.happen(event.place, event.argument);
            continue;
        }
        now.running = &now.threads[who];
        if (now.running != me)
            switch_fiber(me ? &me->fiber : &now.host, &now.running->fiber);
        return;
    }
    if (me)
        go_to_host();
}

void wait(const char *what, site where, size_t which)
{
    thread *me = now.running;
    me->waits = what;
    me->where = where;
    me->what = which;
    pass_on();
}

void look()
{
    if (++now.looks == MOST_LOOKS)
        fail("looks for ever for what no other thread writes");
    now.looking.push_back((uint32_t)(now.running - now.threads));
    wait("its turn", {"", 0}, 0);
}

// The bucket is drawn anew: the others may get far before it is this thread's turn.
void yield_at_times(const void *p)
{
    if (draw() % YIELDS || is_shared(p))
        return;
    add_turn(draw_bucket(nullptr), (uint32_t)(now.running - now.threads));
    wait("its turn", {"", 0}, 0);
}

// A fiber is a thread of one block after the other.
static void be_threads()
{
    for (;;) {
        block_place *place = &now.places[now.running->place];
        observe(&place->start);
        now.body->run();
        announce(&place->end);
        now.running->returned = true;
        if (note_return(now.running)) {
            now.ended = true;
            now.place = now.running->place;
            go_to_host();
        } else {
            pass_on();
        }
    }
}

// --- failures ------------------------------------------------------------------------------------

static void complain_with(const char *format, va_list arguments)
{
    if (now.failed)
        return;
    now.failed = true;
    dim3 block = now.places[place()].index;
    int used = now.running
                   ? snprintf(now.message, now.room, "block (%u,%u), thread (%u,%u): ", block.x,
                              block.y, now.running->index.x, now.running->index.y)
                   : snprintf(now.message, now.room, "block (%u,%u): ", block.x, block.y);
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
    for (;;) // the host gives the stack back
        go_to_host();
}

// Called if no thread can continue although not all have returned: prints what each of the first
// unfinished block waits for.
static void complain_of_deadlock(int blocks)
{
    char text[400] = "";
    size_t used = 0;
    const thread *threads = now.threads;
    for (int i = 0; i < blocks * now.count; i++)
        if (!now.threads[i].returned) {
            now.place = now.threads[i].place;
            threads = &now.threads[now.place * now.count];
            break;
        }
    for (int i = 0; i < now.count && used < sizeof text - 1;) {
        const thread *first = &threads[i];
        int end = i;
        while (end < now.count && threads[end].returned == first->returned &&
               (first->returned ||
                (threads[end].waits == first->waits && threads[end].what == first->what)))
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
    now.looking.reserve(MOST_FIBERS);
    now.events.reserve(MOST_TURNS);
    now.free_events.reserve(MOST_TURNS);
    memset(now.ready, 0, sizeof now.ready);
    now.filled = 0;
    now.looking.clear();
    now.events.clear();
    now.free_events.clear();
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
}

static void begin_block(int place, dim3 index)
{
    dim3 shape = now.shape->block;
    now.place = place;
    now.places[place].index = index;
    open_block(now.count);
    thread *threads = &now.threads[place * now.count];
    for (int i = 0; i < now.count; i++) {
        thread *thread = &threads[i];
        unsigned number = (unsigned)i;
        thread->place = place;
        thread->number = i;
        thread->index = {number % shape.x, number / shape.x % shape.y, number / shape.x / shape.y};
        thread->returned = false;
        thread->bucket = random_below(&noise, BUCKETS);
        thread->groups = 0;
        thread->unfenced = false;
        thread->copies.clear();
    }
    for (int i = 0; i < now.count; i++)
        make_ready(&threads[i]);
    announce(&now.places[place].start);
}

// The blocks of a grid, in some order.
struct grid_order {
    dim3 grid;
    uint64_t blocks, left, at, step;
};

static grid_order draw_grid_order(dim3 grid)
{
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    uint64_t at = draw() % blocks, step = draw() % blocks + 1;
    while (std::gcd(step, blocks) != 1)
        step++;
    return {grid, blocks, blocks, at, step};
}

static void begin_next(grid_order *order, int place)
{
    uint64_t at = order->at;
    dim3 grid = order->grid;
    order->at = (at + order->step) % order->blocks;
    order->left--;
    begin_block(place, {(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
                        (unsigned)(at / grid.x / grid.y)});
}

// A block begins where another has ended.
static void run_grid(int places)
{
    grid_order order = draw_grid_order(now.shape->grid);
    int running = 0;
    while (running < places)
        begin_next(&order, running++);
    while (running > 0 && !now.failed) {
        now.ended = false;
        pass_on();
        if (!now.ended) {
            complain_of_deadlock(places);
            return;
        }
        observe(&now.places[now.place].end);
        if (order.left > 0)
            begin_next(&order, now.place);
        else
            running--;
    }
}

void run_launch(const char *name, const launch_shape &shape, const launch_body &body, char *message,
                size_t room)
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
    uint64_t most = std::min({blocks, (uint64_t)MOST_PLACES, (uint64_t)(MOST_FIBERS / now.count)});
    int places = (int)(draw() % most) + 1;
    adopt_fiber(&now.host);
    if (make_threads(places * now.count))
        run_grid(places);
    else
        complain("no memory for the stacks of %d threads", places * now.count);
    if (now.failed) {
        size_t used = strlen(message);
        snprintf(message + used, room - used, " [%s]", name);
        free_threads();
    }
}

} // namespace emulated
