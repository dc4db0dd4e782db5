// SPDX-License-Identifier: MIT
// Holds the device's PNG coders against zlib and libpng on random pictures, and times them with
// --bench. Each coder is a row of the table `parts`.
#include "check_codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if CONV_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#define EXIT_SKIPPED 77 // what ctest's SKIP_RETURN_CODE says

struct part {
    const char *name;
    bool (*check)(uint64_t seed, int rounds);
    bool (*bench)(const struct check_bench *bench);
};

#if CONV_HAVE_CUDA
static const struct part parts[] = {
    {"encode", check_codec_encode, check_codec_encode_bench},
};

static const char *find_device(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    return error != cudaSuccess ? cudaGetErrorString(error) : count ? NULL : "no CUDA device";
}
#else
static const struct part parts[] = {{NULL, NULL, NULL}};

static const char *find_device(void)
{
    return "built without CUDA";
}
#endif

struct options {
    uint64_t seed;
    int rounds;
    const char *part; // NULL: all
    bool timed;
    struct check_bench bench;
};

static bool parse_options(struct options *options, int argc, char **argv)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--seed") && value)
            options->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--rounds") && value)
            options->rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--part") && value)
            options->part = argv[++i];
        else if (!strcmp(argv[i], "--copies") && value)
            options->bench.copies = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--runs") && value)
            options->bench.runs = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--bench"))
            options->timed = true;
        else
            return false;
    }
    options->bench.files = argv + i;
    options->bench.count = argc - i;
    return options->rounds > 0 && options->bench.copies > 0 && options->bench.runs > 0 &&
           options->timed == (options->bench.count > 0);
}

static bool run_part(const struct part *part, const struct options *options)
{
    if (options->timed)
        return part->bench(&options->bench);
    printf("%s: seed %" PRIu64 ", %d rounds\n", part->name, options->seed, options->rounds);
    fflush(stdout);
    return part->check(options->seed, options->rounds);
}

int main(int argc, char **argv)
{
    struct options options = {
        .seed = (uint64_t)time(NULL), .rounds = 200, .bench = {.copies = 1, .runs = 5}};
    if (!parse_options(&options, argc, argv)) {
        fprintf(stderr,
                "usage: check_codec [--part NAME] [--seed N] [--rounds N]\n"
                "       check_codec [--part NAME] --bench [--copies N] [--runs N] FILE...\n");
        return 2;
    }
    const char *reason = find_device();
    if (reason) {
        const char *required = getenv("CONV_REQUIRE_CUDA");
        bool fail = required && strcmp(required, "1") == 0;
        printf("%s: %s\n", fail ? "FAILED" : "skipped", reason);
        return fail ? 1 : EXIT_SKIPPED;
    }
    bool ok = true, found = false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (options.part && strcmp(options.part, parts[i].name) != 0)
            continue;
        found = true;
        ok = run_part(&parts[i], &options) && ok;
    }
    if (!found)
        printf("FAILED: no part is named %s here\n", options.part);
    return ok && found ? 0 : 1;
}
