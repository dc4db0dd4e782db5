// SPDX-License-Identifier: MIT
// Compares the device's coders with zlib, libpng and libjpeg on random images. Each coder is an
// entry of the table `parts`. `conv bench codec --device cuda` times them.
#include "check_codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support/device.h"
#include "support/options.h"

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
    const struct option_row rows[] = {{"--seed", .seed = &options.seed},
                                      {"--rounds", .number = &options.rounds},
                                      {"--mutate", .number = &options.mutations},
                                      {"--part", .text = &part}, // of the table; else all
                                      {"--corpus", .text = &options.corpus},
                                      {"--no-special", .off = &options.special}};
    if (!options_parse(rows, sizeof rows / sizeof rows[0], argc, argv))
        return 2;
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
