// SPDX-License-Identifier: MIT
// The states of slots: every transition that a run makes is allowed, others are not.
#include "run/pool.h"
#include "support/unit.h"

#define SLOT(state) CONV_SLOT_##state
#define SLOTS(...)                                                                                 \
    do {                                                                                           \
        const enum conv_slot_state states[] = {__VA_ARGS__};                                       \
        for (size_t i = 1; i < sizeof states / sizeof states[0]; i++)                              \
            assert_true(conv_slot_may_move(states[i - 1], states[i]));                             \
    } while (0)

UNIT_TEST(test_slots_take_these_ways)
{
    SLOTS(SLOT(FREE), SLOT(OPEN), SLOT(SEALED), SLOT(READY), SLOT(RUNNING), SLOT(READY));
    SLOTS(SLOT(RUNNING), SLOT(DRAINING), SLOT(FREE));
    SLOTS(SLOT(OPEN), SLOT(FREE));
    SLOTS(SLOT(SEALED), SLOT(FREE));
    SLOTS(SLOT(SEALED), SLOT(DRAINING));
}

UNIT_TEST(test_others_are_refused)
{
    assert_false(conv_slot_may_move(SLOT(FREE), SLOT(FREE)));  // released twice
    assert_false(conv_slot_may_move(SLOT(OPEN), SLOT(READY))); // still takes images
    assert_false(conv_slot_may_move(SLOT(RUNNING), SLOT(FREE)));
    assert_false(conv_slot_may_move(SLOT(SEALED), SLOT(OPEN)));
}

UNIT_MAIN(NULL, NULL)
