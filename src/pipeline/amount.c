// SPDX-License-Identifier: MIT
#include "pipeline/amount.h"

#include <string.h>
#include <sys/stat.h>

// To look at a file takes a microsecond or two, which is not to be noticed beside the work on it: a
// folder of smaller files is not looked at any further.
#define LEAST_BYTES ((uint64_t)48 << 10) // on average
#define LOOK 512                         // pictures, before the average counts

static bool is_read_once(const struct conv_walk_config *config)
{
    struct stat info;
    const char *list = config->files_from;
    return list && (strcmp(list, "-") == 0 || stat(list, &info) != 0 || !S_ISREG(info.st_mode));
}

static bool is_worth_more(const struct conv_amount *amount)
{
    return amount->pictures < LOOK || amount->bytes / LEAST_BYTES >= amount->pictures;
}

void conv_amount_measure(struct conv_amount *amount, const struct conv_walk_config *config)
{
    struct conv_walk *walk;
    struct conv_walk_entry entry;
    struct conv_err err;
    struct stat info;
    *amount = (struct conv_amount){0};
    if (is_read_once(config) || conv_walk_open(&walk, config, &err))
        return;
    enum conv_walk_step step = CONV_WALK_ENTRY;
    while (step != CONV_WALK_END && !amount->much && is_worth_more(amount)) {
        step = conv_walk_next(walk, &entry, &err);
        if (step != CONV_WALK_ENTRY || strcmp(entry.input, "-") == 0 ||
            stat(entry.input, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        amount->pictures++;
        amount->bytes += (uint64_t)info.st_size;
        amount->much = amount->bytes >= CONV_AMOUNT_MUCH;
    }
    conv_walk_close(walk);
}
