// SPDX-License-Identifier: MIT
// The states of slots and jobs: every transition that a run makes is allowed, others are not.
#include "run/job.h"
#include "run/pool.h"
#include "support/unit.h"

#define JOB(state) CONV_JOB_##state
#define SLOT(state) CONV_SLOT_##state
#define EACH_MAY_FOLLOW(may_move, type, ...)                                                       \
    do {                                                                                           \
        const type states[] = {__VA_ARGS__};                                                       \
        for (size_t i = 1; i < sizeof states / sizeof states[0]; i++)                              \
            assert_true(may_move(states[i - 1], states[i]));                                       \
    } while (0)
#define JOBS(...) EACH_MAY_FOLLOW(conv_job_may_move, enum conv_job_state, __VA_ARGS__)
#define SLOTS(...) EACH_MAY_FOLLOW(conv_slot_may_move, enum conv_slot_state, __VA_ARGS__)

UNIT_TEST(test_jobs_and_slots_take_these_ways)
{
    JOBS(JOB(FREE), JOB(FOUND), JOB(ANNOUNCED), JOB(READING), JOB(PARKED), JOB(DECODING),
         JOB(DECODED), JOB(FILTERED), JOB(ENCODING), JOB(FREE));
    JOBS(JOB(READING), JOB(WHOLE), JOB(FREE));
    JOBS(JOB(READING), JOB(DECODING), JOB(DECODED), JOB(UNDECODED), JOB(READING));
    JOBS(JOB(DECODING), JOB(PARKED));
    SLOTS(SLOT(FREE), SLOT(OPEN), SLOT(SEALED), SLOT(READY), SLOT(RUNNING), SLOT(READY));
    SLOTS(SLOT(RUNNING), SLOT(DRAINING), SLOT(FREE));
    SLOTS(SLOT(OPEN), SLOT(FREE));
    SLOTS(SLOT(SEALED), SLOT(FREE));
    SLOTS(SLOT(SEALED), SLOT(DRAINING));
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

UNIT_MAIN(NULL, NULL)
