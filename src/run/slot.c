// SPDX-License-Identifier: MIT
#include "run/slot.h"

#include <assert.h>

#define TO(state) (1u << CONV_SLOT_##state)

bool conv_slot_may_move(enum conv_slot_state from, enum conv_slot_state to)
{
    static const unsigned next[] = {
        [CONV_SLOT_FREE] = TO(OPEN),
        [CONV_SLOT_OPEN] = TO(SEALED) | TO(FREE),
        [CONV_SLOT_SEALED] = TO(READY) | TO(DRAINING) | TO(FREE),
        [CONV_SLOT_READY] = TO(RUNNING),
        [CONV_SLOT_RUNNING] = TO(READY) | TO(DRAINING), // put back by a thread that only pins it
        [CONV_SLOT_DRAINING] = TO(FREE),
    };
    return next[from] >> to & 1;
}

void conv_slot_move(struct conv_slot *slot, enum conv_slot_state state)
{
    assert(conv_slot_may_move(slot->state, state));
    slot->state = state;
}
