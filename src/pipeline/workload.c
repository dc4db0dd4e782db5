// SPDX-License-Identifier: MIT
#include "pipeline/workload.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/paths.h"
#include "png/png.h"

// Files whose size is looked at: each takes a microsecond or two, or a while over a network.
#define LOOK 256
#define OPEN_EACH 16 // of which one is opened

// Smaller files on average are walked no further than that: a name takes a microsecond, which is
// not to be noticed beside the work on its image.
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

static bool looks_plain(const char *path)
{
    uint8_t head[CONV_PNG_HEAD_SIZE];
    int fd = conv_paths_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, head, sizeof head);
    close(fd);
    return got == (ssize_t)sizeof head && conv_png_looks_plain(head);
}

// What the files that were looked at had.
struct sample {
    uint64_t files, bytes; // of all of them
    int opened, plain;     // of some
};

static void look_at(struct sample *sample, const char *path)
{
    uint64_t size = size_of(path);
    if (size > 0 && sample->files % OPEN_EACH == 0) {
        sample->opened++;
        sample->plain += looks_plain(path);
    }
    sample->files++;
    sample->bytes += size;
}

static bool is_much(const struct conv_workload *amount, const struct sample *sample,
                    const struct conv_workload_thresholds *enough)
{
    bool plain = 4 * sample->plain >= 3 * sample->opened;
    return amount->bytes >= (plain ? enough->plain : enough->others);
}

void conv_workload_measure(struct conv_workload *amount, const struct conv_walk_config *config,
                           const struct conv_workload_thresholds *enough)
{
    struct conv_walk *walk;
    struct conv_walk_entry entry;
    struct conv_err err;
    *amount = (struct conv_workload){CONV_AMOUNT_UNKNOWN, 0, 0};
    if (is_read_once(config) || conv_walk_open(&walk, config, &err))
        return;
    struct sample sample = {0};
    bool much = false;
    enum conv_walk_step step = CONV_WALK_ENTRY;
    while (step != CONV_WALK_END && !much &&
           (sample.files < LOOK || sample.bytes / LOOK >= LEAST_BYTES)) {
        step = conv_walk_next(walk, &entry, &err);
        if (step != CONV_WALK_ENTRY)
            continue;
        if (sample.files < LOOK)
            look_at(&sample, entry.input);
        amount->images++;
        amount->bytes = sample.files < LOOK ? sample.bytes : sample.bytes / LOOK * amount->images;
        much = sample.files == LOOK && is_much(amount, &sample, enough);
    }
    much = much || (step == CONV_WALK_END && is_much(amount, &sample, enough));
    amount->kind = much ? CONV_AMOUNT_MUCH : CONV_AMOUNT_LITTLE;
    conv_walk_close(walk);
}
