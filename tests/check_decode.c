// SPDX-License-Identifier: MIT
// The decoder on the device against the one on the CPU, and timed with --bench.
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check_decode.h"

#define EXIT_SKIPPED 77 // what ctest's SKIP_RETURN_CODE says

struct options {
    uint64_t seed;
    int rounds;
    const char *corpus; // NULL: none
    int copies;         // 0: the usual numbers
    int threads;        // 0: as the decoder chooses
    char **paths;       // of files to time, NULL: none
    int path_count;
};

static bool parse_options(struct options *options, int argc, char **argv)
{
    bool timed = false;
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--seed") && value) {
            options->seed = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--rounds") && value) {
            options->rounds = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--corpus") && value) {
            options->corpus = argv[++i];
        } else if (!strcmp(argv[i], "--copies") && value) {
            options->copies = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--threads") && value) {
            options->threads = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--bench")) {
            timed = true;
        } else if (timed && argv[i][0] != '-') {
            options->paths = argv + i;
            options->path_count = argc - i;
            break;
        } else {
            return false;
        }
    }
    return options->rounds > 0 && options->copies >= 0 && timed == (options->path_count > 0);
}

// Exits where there is no device.
static void need_device(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        return;
    const char *required = getenv("CONV_REQUIRE_CUDA");
    bool fail = required && strcmp(required, "1") == 0;
    printf("decoding on a device %s: %s\n", fail ? "FAILED" : "skipped",
           error ? cudaGetErrorString(error) : "no CUDA device");
    exit(fail ? 1 : EXIT_SKIPPED);
}

static bool bench(const struct options *options)
{
    static const int copies[] = {1, 132, 1000, 4000};
    if (options->copies)
        return check_decode_bench(options->paths, options->path_count, options->copies,
                                  options->threads);
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++)
        if (!check_decode_bench(options->paths, options->path_count, copies[i], options->threads))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = (uint64_t)time(NULL), .rounds = 200};
    if (!parse_options(&options, argc, argv)) {
        fprintf(stderr, "usage: check_decode [--seed N] [--rounds N] [--corpus FOLDER]\n"
                        "       check_decode --bench [--copies N] [--threads N] FILE.png ...\n");
        return 2;
    }
    need_device();
    if (options.paths)
        return bench(&options) ? 0 : 1;
    printf("seed %" PRIu64 ", %d rounds\n", options.seed, options.rounds);
    fflush(stdout);
    return check_codec_decode(options.seed, options.rounds, options.corpus) ? 0 : 1;
}
