// SPDX-License-Identifier: MIT
// The states of slots and jobs: every transition that a run makes is allowed, others are not, and
// no state is a dead end.
#include "run/job.h"
#include "run/pool.h"
#include "support/unit.h"

#define JOB(state) CONV_JOB_##state
#define SLOT(state) CONV_SLOT_##state
#define COUNT(states) (sizeof(states) / sizeof(states)[0])

static void walk_job(const enum conv_job_state *states, size_t count)
{
    struct conv_job job = {.state = states[0]};
    for (size_t i = 1; i < count; i++) {
        assert_true(conv_job_may_move(job.state, states[i]));
        conv_job_move(&job, states[i]);
        assert_int_equal(job.state, states[i]);
    }
}

static void walk_slot(const enum conv_slot_state *states, size_t count)
{
    struct conv_slot slot = {.state = states[0]};
    for (size_t i = 1; i < count; i++) {
        assert_true(conv_slot_may_move(slot.state, states[i]));
        conv_slot_move(&slot, states[i]);
        assert_int_equal(slot.state, states[i]);
    }
}

UNIT_TEST(test_jobs_take_these_ways)
{
    const enum conv_job_state usual[] = {
        JOB(FREE),    JOB(FOUND),    JOB(ANNOUNCED), JOB(READING), JOB(PARKED), JOB(DECODING),
        JOB(DECODED), JOB(FILTERED), JOB(ENCODING),  JOB(FREE),    JOB(FOUND)};
    const enum conv_job_state whole[] = {JOB(FOUND), JOB(ANNOUNCED), JOB(READING), JOB(WHOLE),
                                         JOB(FREE)};
    const enum conv_job_state again[] = {JOB(READING), JOB(DECODING), JOB(DECODED), JOB(UNDECODED),
                                         JOB(READING), JOB(DECODING), JOB(PARKED),  JOB(DECODING)};
    walk_job(usual, COUNT(usual));
    walk_job(whole, COUNT(whole));
    walk_job(again, COUNT(again));
}

UNIT_TEST(test_slots_take_these_ways)
{
    const enum conv_slot_state usual[] = {SLOT(FREE),    SLOT(OPEN),     SLOT(SEALED),
                                          SLOT(READY),   SLOT(RUNNING),  SLOT(READY),
                                          SLOT(RUNNING), SLOT(DRAINING), SLOT(FREE)};
    const enum conv_slot_state failed[] = {SLOT(OPEN), SLOT(SEALED), SLOT(FREE)};
    const enum conv_slot_state left[] = {SLOT(SEALED), SLOT(DRAINING)};
    const enum conv_slot_state whole[] = {SLOT(FREE), SLOT(OPEN), SLOT(FREE)};
    walk_slot(usual, COUNT(usual));
    walk_slot(failed, COUNT(failed));
    walk_slot(left, COUNT(left));
    walk_slot(whole, COUNT(whole));
}

UNIT_TEST(test_others_are_refused)
{
    assert_false(conv_job_may_move(JOB(FREE), JOB(FREE)));         // twice in the list of free jobs
    assert_false(conv_job_may_move(JOB(FILTERED), JOB(DECODING))); // its staging memory is gone
    assert_false(conv_job_may_move(JOB(WHOLE), JOB(ENCODING)));
    assert_false(conv_job_may_move(JOB(UNDECODED), JOB(DECODING))); // its file is gone
    assert_false(conv_slot_may_move(SLOT(FREE), SLOT(FREE)));       // released twice
    assert_false(conv_slot_may_move(SLOT(OPEN), SLOT(READY)));      // still takes images
    assert_false(conv_slot_may_move(SLOT(RUNNING), SLOT(FREE)));
    assert_false(conv_slot_may_move(SLOT(SEALED), SLOT(OPEN)));
}

UNIT_TEST(test_no_state_is_a_dead_end)
{
    for (int from = 0; from <= CONV_JOB_WHOLE; from++) {
        int ways = 0;
        for (int to = 0; to <= CONV_JOB_WHOLE; to++)
            ways += conv_job_may_move((enum conv_job_state)from, (enum conv_job_state)to);
        assert_true(ways > 0 && ways < CONV_JOB_WHOLE);
    }
    for (int from = 0; from <= CONV_SLOT_DRAINING; from++) {
        int ways = 0;
        for (int to = 0; to <= CONV_SLOT_DRAINING; to++)
            ways += conv_slot_may_move((enum conv_slot_state)from, (enum conv_slot_state)to);
        assert_true(ways > 0 && ways < CONV_SLOT_DRAINING);
    }
}

UNIT_MAIN(NULL, NULL)
