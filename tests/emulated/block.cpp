// SPDX-License-Identifier: MIT
// Barriers of a block, collectives of warps.
#include "block.h"

#include "bulk.h"
#include "scheduler.h"
#include "shared.h"

namespace emulated
{

#define WARPS (CONV_EMULATED_MOST_THREADS / CONV_EMULATED_WARP)
// Of a warp at a time: at most 16 that begin, of two lanes or more, and as many that end.
#define MEETINGS 32

struct meeting {
    bool begun, over;
    site where;
    uint32_t mask, here, leaving;
    uint64_t words[CONV_EMULATED_WARP][CONV_EMULATED_WORDS];
};

struct warp {
    uint32_t returned; // and those that never were
    int used;          // of the meetings
    meeting meetings[MEETINGS];
};

struct block_state {
    warp warps[WARPS];
    // The barrier of the block: the threads that have arrived and those that have not.
    int arrived, left;
    site where;
    unsigned phase;
    bool any[2];  // the votes of a phase
    char keys[2]; // for the thread sanitizer: a phase's arrivals
};

static block_state states[CONV_EMULATED_MOST_BLOCKS];

static bool same(site a, site b)
{
    // It is nearly always the same string; strcmp alone took a sixth of the time of a check.
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

// --- the block's barrier -------------------------------------------------------------------------

static const char all_threads[] = "all threads";

static void end_phase(block_state &block)
{
    block.arrived = 0;
    block.phase++;
    block.any[block.phase % 2] = false; // all have read it: they have met once more since
    for (int i = 0; i < thread_count(); i++)
        if (thread_at(i)->waits == all_threads)
            make_ready(thread_at(i));
}

void meet_block(site where)
{
    block_state &block = states[place()];
    if (block.arrived == 0)
        block.where = where;
    else if (!same(where, block.where))
        fail("divergent barriers: __syncthreads at %s:%d, others at %s:%d", where.file, where.line,
             block.where.file, block.where.line);
    char *key = &block.keys[block.phase % 2];
    announce(key);
    if (++block.arrived == block.left) {
        end_phase(block);
        make_ready(self());
        wait("its turn", where, 0);
    } else {
        wait(all_threads, where, block.phase);
    }
    self()->unfenced = true;
    observe(key);
}

bool meet_block_with(site where, bool value)
{
    block_state &block = states[place()];
    unsigned phase = block.phase % 2;
    block.any[phase] |= value;
    meet_block(where);
    return block.any[phase];
}

// --- collectives ---------------------------------------------------------------------------------

static meeting *find_meeting(warp *warp, uint32_t mask)
{
    meeting *unused = nullptr;
    for (int i = 0; i < warp->used; i++) {
        meeting *meeting = &warp->meetings[i];
        if (meeting->begun && !meeting->over && meeting->mask == mask)
            return meeting;
        if (!meeting->begun)
            unused = meeting;
    }
    if (!unused) {
        if (warp->used == MEETINGS)
            fail("more than %d collectives of a warp at a time", MEETINGS);
        unused = &warp->meetings[warp->used++];
    }
    unused->begun = false;
    return unused;
}

meeting *meet_warp(site where, uint32_t mask, const uint64_t *words, int count)
{
    int warp_number = self()->number / CONV_EMULATED_WARP;
    warp *warp = &states[place()].warps[warp_number];
    uint32_t bit = 1u << lane();
    if (!(mask & bit))
        fail("%s:%d: the mask %08x of a collective leaves its caller out", where.file, where.line,
             mask);
    if (mask & warp->returned)
        fail("%s:%d: a collective of lanes %08x, of which %08x have returned", where.file,
             where.line, mask, mask & warp->returned);
    meeting *meeting = find_meeting(warp, mask);
    if (!meeting->begun) {
        meeting->begun = true;
        meeting->over = false;
        meeting->where = where;
        meeting->mask = mask;
        meeting->here = meeting->leaving = 0;
    } else if (!same(meeting->where, where)) {
        fail("lanes of a warp in different collectives, at %s:%d and %s:%d", where.file, where.line,
             meeting->where.file, meeting->where.line);
    }
    volatile uint64_t *to = meeting->words[lane()]; // volatile: no call of memcpy, see fiber.h
    for (int i = 0; i < count; i++)
        to[i] = words[i];
    meeting->here |= bit;
    announce(meeting);
    if (meeting->here == mask) {
        meeting->over = true;
        for (int i = 0; i < CONV_EMULATED_WARP; i++)
            if (mask >> i & 1)
                make_ready(thread_at(warp_number * CONV_EMULATED_WARP + i));
        wait("its turn", where, 0);
    } else {
        wait("lanes of its warp", where, (size_t)mask);
    }
    observe(meeting);
    return meeting;
}

const uint64_t *words_of(const meeting *meeting)
{
    return meeting->words[0];
}

void leave_warp(meeting *meeting)
{
    meeting->leaving |= 1u << lane();
    if (meeting->leaving == meeting->mask)
        meeting->begun = false;
}

int leader(uint32_t mask)
{
    uint32_t first = (uint32_t)(block_shape().x + mask) % CONV_EMULATED_WARP;
    for (uint32_t i = 0; i < CONV_EMULATED_WARP; i++)
        if (mask >> (first + i) % CONV_EMULATED_WARP & 1)
            return (int)((first + i) % CONV_EMULATED_WARP);
    return -1;
}

// --- begin and end -------------------------------------------------------------------------------

void open_block(int threads)
{
    block_state &block = states[place()];
    for (int w = 0; w < WARPS; w++) {
        int lanes = threads - w * CONV_EMULATED_WARP;
        block.warps[w].returned = lanes >= CONV_EMULATED_WARP ? 0
                                  : lanes <= 0                ? UINT32_MAX
                                                              : UINT32_MAX << lanes;
        block.warps[w].used = 0; // find_meeting() resets the others before use
    }
    block.arrived = 0;
    block.left = threads;
    block.any[0] = block.any[1] = false;
    open_shared();
    open_bulk();
}

bool note_return(thread *thread)
{
    block_state &block = states[thread->place];
    warp *warp = &block.warps[thread->number / CONV_EMULATED_WARP];
    uint32_t bit = 1u << thread->number % CONV_EMULATED_WARP;
    warp->returned |= bit;
    for (int i = 0; i < warp->used; i++) {
        const meeting *meeting = &warp->meetings[i];
        if (meeting->begun && !meeting->over && (meeting->mask & bit))
            fail("returns while lanes of its warp wait for it at %s:%d", meeting->where.file,
                 meeting->where.line);
    }
    if (--block.left == 0)
        close_bulk();
    else if (block.arrived == block.left)
        end_phase(block);
    return block.left == 0;
}

} // namespace emulated
