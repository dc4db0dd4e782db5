// SPDX-License-Identifier: MIT
// Compares the device's coders with zlib, libpng and libjpeg on random images. Each coder is an
// entry of the table `parts`. `conv bench codec --device cuda` times them.
#include "check_codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/device.h"

struct part {
    const char *name;
    bool (*check)(const struct check_options *options);
};

#if CONV_HAVE_CUDA
static const struct part parts[] = {
    {"encode", check_codec_encode},
    {"decode", check_codec_decode},
#if CONV_HAVE_JPEG
    {"jpeg_encode", check_jpeg_encode},
    {"jpeg_decode", check_jpeg_decode},
#endif
};
#else
static const struct part parts[] = {{NULL, NULL}};
#endif

// *part is NULL for all.
static bool parse_options(struct check_options *options, const char **part, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i];
        if (!strcmp(name, "--no-special")) {
            options->special = false;
            i--;
            continue;
        }
        if (i + 1 == argc)
            return false;
        const char *value = argv[i + 1];
        if (!strcmp(name, "--seed"))
            options->seed = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--rounds"))
            options->rounds = atoi(value);
        else if (!strcmp(name, "--mutate"))
            options->mutations = atoi(value);
        else if (!strcmp(name, "--part"))
            *part = value;
        else if (!strcmp(name, "--corpus"))
            options->corpus = value;
        else
            return false;
    }
    return options->rounds >= 0;
}

static bool run_part(const struct part *part, const struct check_options *options)
{
    printf("%s: seed %" PRIu64 ", %d rounds\n", part->name, options->seed, options->rounds);
    fflush(stdout);
    return part->check(options);
}

int main(int argc, char **argv)
{
    struct check_options options = {
        .seed = (uint64_t)time(NULL), .rounds = 200, .special = true, .mutations = 4};
    const char *part = NULL;
    if (!parse_options(&options, &part, argc, argv)) {
        fprintf(stderr,
                "usage: check_codec [--part encode|decode|jpeg_encode|jpeg_decode] [--seed N] "
                "[--rounds N] [--mutate N] [--corpus FOLDER] [--no-special]\n");
        return 2;
    }
    const char *reason;
    if (!device_capability(&reason))
        return device_missing("coders", reason);
    bool ok = true, found = false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (part && strcmp(part, parts[i].name) != 0)
            continue;
        found = true;
        ok = run_part(&parts[i], &options) && ok;
    }
    if (!found)
        printf("FAILED: no part is named %s here\n", part);
    return ok && found ? 0 : 1;
}
