// SPDX-License-Identifier: MIT
// Compares the decoder on the device with the one on the CPU: among streams of all kinds it must
// decode the same ones to the same planes, and access no other memory.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "check_codec.h"
#include "check_decode.h"
#include "png/cuda/cuda_png.h"
#include "support/test_image.h"

#ifndef CHECK_CUT
#define CHECK_CUT 600 // samples of the image whose stream is cut before every byte
#endif
#ifndef CHECK_SAMPLES
#define CHECK_SAMPLES 200000 // of a large random image
#endif
#ifndef CHECK_DAMAGED
#define CHECK_DAMAGED 30000 // samples of a large random image of which damaged copies are made
#endif
#ifndef CHECK_ORDERS
#define CHECK_ORDERS 4 // of emulated threads, for images that several blocks unfilter
#endif
#ifndef CHECK_PHOTOGRAPHS
#define CHECK_PHOTOGRAPHS 8 // in a batch
#endif
#ifndef CHECK_THREADS
#define CHECK_THREADS 0, 128, 256, 512 // that decode an image; 0: the decoder's choice
#endif

struct batch {
    struct check_stream streams[CHECK_DECODE_MOST];
    struct conv_image planes[CHECK_DECODE_MOST];
    enum check_verdict verdicts[CHECK_DECODE_MOST];
    bool limited; // the cost of block headers, as in the program
    bool stopped;
    bool in_parts; // each stream is cut into a few
    bool few;      // decoded by the kernels for few images, not by those for many as well
    int count;
};

// Streams that the oracle accepts and refuses: a check in which all are refused would prove little.
static struct {
    int right, wrong, split;
} counts;

static void ask_oracle(struct batch *batch, struct check_stream stream)
{
    int i = batch->count++;
    batch->streams[i] = stream;
    batch->verdicts[i] = check_oracle(&batch->planes[i], &stream);
    counts.right += batch->verdicts[i] != CHECK_MUST_REFUSE;
    counts.wrong += batch->verdicts[i] == CHECK_MUST_REFUSE;
}

// Decodes with a random number of threads per image; streams of thousands of blocks with few
// threads, since each step of a thread takes time there.
static bool check(struct batch *batch)
{
    static const int threads[] = {CHECK_THREADS};
    struct check_decode_run how = {
        .threads = threads[check_decode_random(sizeof threads / sizeof *threads)],
        .at_once = check_decode_random(2)                  ? 1
                   : !batch->few && check_decode_random(2) ? 1 << 20
                                                           : 0,
        .parts = batch->in_parts                             ? 4
                 : !batch->limited && check_decode_random(2) ? 2 + (int)check_decode_random(255)
                                                             : 0,
        .at_any_cost = !batch->limited,
        .stopped = batch->stopped,
        .seed = check_decode_random(1u << 31),
    };
#ifdef CONV_EMULATED
    if (batch->limited)
        how.threads = 128;
#endif
    int split = 0;
    bool ok = batch->count == 0 || check_decode_batch(batch->streams, batch->planes,
                                                      batch->verdicts, batch->count, &how, &split);
    counts.split += ok ? split : 0;
    for (int i = 0; i < batch->count; i++) {
        free(batch->streams[i].bytes);
        image_free(&batch->planes[i]);
    }
    batch->count = 0;
    return ok;
}

// Good images; if there are many, they share the samples. If the oracle decodes an image that
// differs from the drawn one, the test itself is wrong. The oracle refuses streams whose window is
// smaller than the image.
static bool check_good(int count, unsigned samples)
{
    static struct batch batch;
    if (count > 2)
        samples = samples * 2 / (unsigned)count;
    for (int i = 0; i < count; i++) {
        struct conv_image drawn;
        ask_oracle(&batch, check_make_stream(1 + check_decode_random(samples), &drawn));
        bool same = batch.verdicts[i] == CHECK_MUST_REFUSE || image_equal(&drawn, &batch.planes[i]);
        image_free(&drawn);
        if (!same) {
            printf("FAILED: the oracle decodes another image than was drawn\n");
            return false;
        }
    }
    return check(&batch);
}

static bool check_damaged(int count, unsigned samples)
{
    static struct batch batch;
    struct check_stream stream = check_make_stream(1 + check_decode_random(samples), NULL);
    for (int i = 0; i < count; i++)
        ask_oracle(&batch, check_damage_stream(&stream));
    free(stream.bytes);
    return check(&batch);
}

// A stream cut off before every byte.
static bool check_cut(unsigned samples)
{
    static struct batch batch;
    bool ok = true;
    struct check_stream stream = check_make_stream(samples, NULL);
    for (size_t size = 0; size < stream.size && ok; size++) {
        ask_oracle(&batch, check_cut_stream(&stream, size));
        if (batch.count == CHECK_DECODE_MOST || size + 1 == stream.size)
            ok = check(&batch);
    }
    free(stream.bytes);
    return ok;
}

static bool check_special(void)
{
    static struct batch batch;
    struct check_stream stream;
    bool ok = true;
    for (int number = 0; check_special_stream(&stream, number) && ok; number++) {
        ask_oracle(&batch, stream);
        if (batch.count == CHECK_DECODE_MOST)
            ok = check(&batch);
    }
    return ok && check(&batch);
}

// Images that are left to the CPU because of their shape or stream size.
static bool check_taken(void)
{
    static const struct {
        int width, height, channels, depth;
        uint32_t stream_bytes;
        bool taken;
    } cases[] = {
        {768, 512, 3, 8, 650000, true},
        {8, 8, 3, 8, 200 * 5 / 4 + (64 << 10), true}, // 200 bytes of rows
        {8, 8, 3, 8, 200 * 5 / 4 + (64 << 10) + 1, false},
        {8, 8, 3, 8, 1000000, false},
        {1, 8192, 1, 8, 100, true},
        {1, 8193, 1, 8, 100, false}, // many rows of a pixel each
        {256, 1000000, 1, 8, 1000000, true},
        {255, 1000000, 1, 8, 1000000, false},
        {1 << 13, 1 << 13, 4, 8, 1 << 20, false}, // 256 MiB of rows
        {1 << 13, (1 << 13) - 1, 4, 8, 1 << 20, true},
    };
    bool ok = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct conv_decode_image image = {
            .stream_bytes = cases[i].stream_bytes,
            .width = cases[i].width,
            .height = cases[i].height,
            .channels = cases[i].channels,
            .depth = cases[i].depth,
        };
        if (conv_cuda_decode_takes(&image) == cases[i].taken)
            continue;
        printf("FAILED: %dx%d with a stream of %u bytes is %staken\n", cases[i].width,
               cases[i].height, cases[i].stream_bytes, cases[i].taken ? "not " : "");
        ok = false;
    }
    return ok;
}

// Streams that would delay a batch are left to the CPU, which decodes them.
static bool check_costly(void)
{
    static struct batch batch = {.limited = true};
    struct check_stream stream;
    for (int number = 0; check_costly_stream(&stream, number); number++) {
        ask_oracle(&batch, stream);
        if (batch.verdicts[batch.count - 1] == CHECK_MUST_REFUSE) {
            printf("FAILED: the CPU refuses %s\n", stream.kind);
            return false;
        }
    }
    return check(&batch);
}

// The cost of blocks and failed parts are reasons for the device to leave an image to the CPU, or
// to another kernel, without an error. Neither may happen to a photograph: it would only be slow.
static bool check_photographs(void)
{
    static struct batch batch = {.limited = true};
    bool ok = true;
    for (int in_parts = 0; in_parts < 2 && ok; in_parts++) {
        for (int i = 0; i < CHECK_PHOTOGRAPHS; i++) {
            ask_oracle(&batch, check_photo_stream());
            if (batch.verdicts[i] != CHECK_MUST_DECODE) {
                printf("FAILED: the CPU leaves a photograph to libpng\n");
                return false;
            }
        }
        int before = counts.split;
        batch.in_parts = in_parts;
        ok = check(&batch);
        if (ok && in_parts && counts.split - before < CHECK_PHOTOGRAPHS) {
            printf("FAILED: %d of %d photographs were decoded in parts\n", counts.split - before,
                   CHECK_PHOTOGRAPHS);
            ok = false;
        }
    }
    return ok;
}

// An interrupted run does not wait for streams that are not decoded yet.
static bool check_stopped(void)
{
    static struct batch batch = {.stopped = true};
    for (int i = 0; i < 4; i++)
        ask_oracle(&batch, check_long_stream());
    return check(&batch);
}

// Images of several bands of rows, which blocks of threads take by turns: each waits for the last
// row of the band before. Repeated, since not every order of emulated threads has two bands in
// progress at a time.
static bool check_bands(void)
{
    static struct batch batch = {.few = true};
    bool ok = true;
    for (int i = 0; i < CHECK_ORDERS && ok; i++) {
        while (batch.count < 2) {
            struct check_stream stream = check_make_stream(8000, NULL);
            stream.kind = "bands";
            if (stream.height >= 100)
                ask_oracle(&batch, stream);
            else
                free(stream.bytes);
        }
        ok = check(&batch);
    }
    return ok;
}

static bool check_files(const char *folder)
{
    static struct batch batch;
    DIR *directory = opendir(folder);
    bool ok = directory != NULL;
    int taken = 0;
    for (struct dirent *entry; ok && (entry = readdir(directory));) {
        char path[4096];
        struct check_stream stream;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (!check_read_stream(&stream, path))
            continue;
        stream.kind = "a file of the corpus";
        taken++;
        ask_oracle(&batch, stream);
        if (batch.count == CHECK_DECODE_MOST)
            ok = check(&batch);
    }
    ok = ok && taken > 0 && check(&batch);
    if (!ok)
        printf("FAILED in %s: %d files taken\n", folder, taken);
    if (directory)
        closedir(directory);
    return ok;
}

bool check_codec_decode(const struct check_options *options)
{
    uint64_t seed = options->seed;
    int rounds = options->rounds;
    const char *corpus = options->corpus;
    check_decode_seed(seed);
    bool ok = check_taken() && check_stopped() && (!corpus || check_files(corpus));
    if (options->special)
        ok = ok && check_photographs() && check_bands() && check_special() && check_costly();
    for (int round = 0; round < rounds && ok; round++) {
        check_decode_seed(seed + (uint64_t)round);
        ok = check_good(1 + (int)check_decode_random(12), round % 8 ? 5000 : CHECK_SAMPLES) &&
             check_damaged(24, round % 8 ? 3000 : CHECK_DAMAGED);
        if (!ok)
            printf("FAILED with --part decode --seed %llu --rounds 1\n",
                   (unsigned long long)seed + round);
    }
    if (options->special)
        ok = ok && check_cut(CHECK_CUT);
    if (ok && rounds >= 8 && counts.split == 0) {
        printf("FAILED: no stream was decoded in parts\n");
        ok = false;
    }
    printf("decode: %d streams that the oracle accepts (%d in parts), %d that it refuses: %s\n",
           counts.right, counts.split, counts.wrong, ok ? "ok" : "FAILED");
    return ok;
}
