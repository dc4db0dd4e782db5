// SPDX-License-Identifier: MIT
// Which variants of a table a check runs: the options that choose them, and what the machine
// supports.
#ifndef CONV_TESTS_VARIANTS_H
#define CONV_TESTS_VARIANTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"
#include "device.h"
#include "kernels/common/place.h"

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

// Parses argument *i and its value if it is an option that all these checks have; else returns
// false.
static inline bool variants_parse(struct variants_choice *choice, int argc, char **argv, int *i)
{
    bool value = *i + 1 < argc;
    if (!strcmp(argv[*i], "--seed") && value)
        choice->seed = strtoull(argv[++*i], NULL, 10);
    else if (!strcmp(argv[*i], "--rounds") && value)
        choice->rounds = atoi(argv[++*i]);
    else if (!strcmp(argv[*i], "--variant") && value)
        choice->variant = argv[++*i];
    else if (!strcmp(argv[*i], "--cpu"))
        choice->cuda = false;
    else if (!strcmp(argv[*i], "--cuda"))
        choice->cpu = false;
    else
        return false;
    return true;
}

// Returns 0, or the exit code of the check if it has nothing to run, or a required device is
// missing.
static inline int variants_open(struct variants_machine *machine,
                                const struct variants_choice *choice)
{
    *machine = (struct variants_machine){.features = conv_cpu_features(), .reason = ""};
    if (!choice->cuda)
        return 0;
    machine->capability = device_capability(&machine->reason);
    if (machine->capability)
        return 0;
    int code = device_missing("CUDA variants", machine->reason);
    return code == 1 || !choice->cpu ? code : 0;
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

#endif
