// SPDX-License-Identifier: MIT
// Which variants of a table a check runs: the options that choose them, and what the machine
// supports.
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "device.h"
#include "kernels/common/place.h"
#include "options.h"

struct variants_choice {
    uint64_t seed;
    int rounds;
    const char *variant; // NULL: all
    bool cpu, cuda;
};

struct variants_machine {
    unsigned features;
    int capability; // 0: no CUDA device
    const char *reason;
};

#define VARIANTS_OPTIONS(choice)                                                                   \
    {"--seed", .seed = &(choice)->seed}, {"--rounds", .number = &(choice)->rounds},                \
        {"--variant", .text = &(choice)->variant}, {"--cpu", .off = &(choice)->cuda},              \
    {                                                                                              \
        "--cuda", .off = &(choice)->cpu                                                            \
    }

// Whether to go on; else *code is the exit code of the check: it has nothing to run, a required
// device is missing, or the check of the check has failed.
static inline bool variants_begin(struct variants_machine *machine,
                                  const struct variants_choice *choice, bool (*selftest)(void),
                                  int *code)
{
    *machine = (struct variants_machine){.features = conv_cpu_features(), .reason = ""};
    *code = 2;
    if (choice->rounds <= 0 || (!choice->cpu && !choice->cuda))
        return false;
    if (choice->cuda)
        machine->capability = device_capability(&machine->reason);
    if (choice->cuda && !machine->capability) {
        *code = device_missing("CUDA variants", machine->reason);
        if (*code == 1 || !choice->cpu)
            return false;
    }
    *code = 1;
    if (!selftest())
        return false;
    printf("seed %" PRIu64 ", %d rounds\n", choice->seed, choice->rounds);
    fflush(stdout);
    return true;
}

static inline bool variants_want(const struct variants_choice *choice, enum conv_place place,
                                 const char *name)
{
    return (place == CONV_ON_CUDA ? choice->cuda : choice->cpu) &&
           (!choice->variant || strcmp(choice->variant, name) == 0);
}

// Why the machine cannot run a variant with these needs; NULL if it can.
static inline const char *variants_obstacle(const struct variants_machine *machine,
                                            enum conv_place place, unsigned needs)
{
    bool on_cuda = place == CONV_ON_CUDA;
    unsigned offers = on_cuda ? (unsigned)machine->capability : machine->features;
    if ((!on_cuda || machine->capability) && conv_place_offers(place, offers, needs))
        return NULL;
    return on_cuda ? machine->reason : "this CPU cannot run it";
}
