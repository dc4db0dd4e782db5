// SPDX-License-Identifier: MIT
#include "run/job.h"

#include <assert.h>

#define TO(state) (1u << CONV_JOB_##state)

bool conv_job_may_move(enum conv_job_state from, enum conv_job_state to)
{
    static const unsigned next[] = {
        [CONV_JOB_FREE] = TO(FOUND),
        [CONV_JOB_FOUND] = TO(ANNOUNCED),
        [CONV_JOB_ANNOUNCED] = TO(READING),
        [CONV_JOB_READING] = TO(DECODING) | TO(PARKED) | TO(WHOLE),
        [CONV_JOB_PARKED] = TO(DECODING),
        [CONV_JOB_DECODING] = TO(DECODED) | TO(PARKED),
        [CONV_JOB_DECODED] = TO(FILTERED) | TO(UNDECODED),
        [CONV_JOB_UNDECODED] = TO(READING),
        [CONV_JOB_FILTERED] = TO(ENCODING),
        [CONV_JOB_ENCODING] = 0,
        [CONV_JOB_WHOLE] = 0,
    };
    return to == CONV_JOB_FREE ? from != CONV_JOB_FREE : next[from] >> to & 1;
}

void conv_job_move(struct conv_job *job, enum conv_job_state state)
{
    assert(conv_job_may_move(job->state, state));
    job->state = state;
}
