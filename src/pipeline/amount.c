// SPDX-License-Identifier: MIT
#include "pipeline/amount.h"

#include <string.h>
#include <sys/stat.h>

// Files whose size is looked at: each takes a microsecond or two, or a while over a network.
#define LOOK 256

// Smaller files on average are walked no further than that: a name takes a microsecond, which is
// not to be noticed beside the work on its picture.
#define LEAST_BYTES ((uint64_t)16 << 10)

static bool is_read_once(const struct conv_walk_config *config)
{
    struct stat info;
    const char *list = config->files_from;
    return list && (strcmp(list, "-") == 0 || stat(list, &info) != 0 || !S_ISREG(info.st_mode));
}

static uint64_t size_of(const char *path)
{
    struct stat info;
    bool is_file = strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode);
    return is_file ? (uint64_t)info.st_size : 0;
}

void conv_amount_measure(struct conv_amount *amount, const struct conv_walk_config *config,
                         uint64_t enough)
{
    struct conv_walk *walk;
    struct conv_walk_entry entry;
    struct conv_err err;
    *amount = (struct conv_amount){0};
    if (is_read_once(config) || conv_walk_open(&walk, config, &err))
        return;
    uint64_t seen = 0; // bytes of the files looked at
    enum conv_walk_step step = CONV_WALK_ENTRY;
    while (step != CONV_WALK_END && !amount->much &&
           (amount->pictures < LOOK || seen / LOOK >= LEAST_BYTES)) {
        step = conv_walk_next(walk, &entry, &err);
        if (step != CONV_WALK_ENTRY)
            continue;
        if (amount->pictures < LOOK)
            seen += size_of(entry.input);
        amount->pictures++;
        amount->bytes = amount->pictures <= LOOK ? seen : seen / LOOK * amount->pictures;
        amount->much = amount->bytes >= enough;
    }
    conv_walk_close(walk);
}
