// SPDX-License-Identifier: MIT
#include "report/record.h"

const char *conv_record_stage_name(enum conv_stage stage)
{
    static const char *const names[CONV_STAGE_COUNT] = {"read",     "decode", "copy_in", "kernel",
                                                        "copy_out", "encode", "write"};
    return names[stage];
}
