// SPDX-License-Identifier: MIT
// Holds the device's PNG coders against zlib and libpng on random images, and times them with
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
    bool (*check)(const struct check_options *options);
    bool (*bench)(const struct check_options *options);
};

#if CONV_HAVE_CUDA
static const struct part parts[] = {
    {"encode", check_codec_encode, check_codec_encode_bench},
    {"decode", check_codec_decode, check_codec_decode_bench},
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

// *part is NULL for all.
static bool parse_options(struct check_options *options, const char **part, int argc, char **argv)
{
    bool timed = false;
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--seed") && value)
            options->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--rounds") && value)
            options->rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--part") && value)
            *part = argv[++i];
        else if (!strcmp(argv[i], "--corpus") && value)
            options->corpus = argv[++i];
        else if (!strcmp(argv[i], "--copies") && value)
            options->copies = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--runs") && value)
            options->runs = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--threads") && value)
            options->threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--bench"))
            timed = true;
        else
            return false;
    }
    options->files = argv + i;
    options->file_count = argc - i;
    return options->rounds > 0 && options->copies >= 0 && options->runs > 0 &&
           timed == (options->file_count > 0);
}

static bool run_part(const struct part *part, const struct check_options *options)
{
    if (options->file_count)
        return part->bench(options);
    printf("%s: seed %" PRIu64 ", %d rounds\n", part->name, options->seed, options->rounds);
    fflush(stdout);
    return part->check(options);
}

int main(int argc, char **argv)
{
    struct check_options options = {.seed = (uint64_t)time(NULL), .rounds = 200, .runs = 5};
    const char *part = NULL;
    if (!parse_options(&options, &part, argc, argv)) {
        fprintf(stderr, "usage: check_codec [--part encode|decode] [--seed N] [--rounds N] "
                        "[--corpus FOLDER]\n"
                        "       check_codec [--part encode|decode] --bench [--copies N] [--runs N] "
                        "[--threads N] FILE...\n");
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
        if (part && strcmp(part, parts[i].name) != 0)
            continue;
        found = true;
        ok = run_part(&parts[i], &options) && ok;
    }
    if (!found)
        printf("FAILED: no part is named %s here\n", part);
    return ok && found ? 0 : 1;
}
