// SPDX-License-Identifier: MIT
// All coders process one image before the next image, round after round, so that a change of clock
// or of other load affects all of them alike. Times are CPU time of the thread. The slowest coders
// take fewer rounds: with all of them, some hundred icons took two minutes.
#include "bench/bench_codec.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "image/interleave.h"
#include "png/png.h"
#include "report/json.h"

#define ROUNDS 5
#define LEAST_ROUNDS 2
#define ENOUGH_NS 1000000000u // of a coder with LEAST_ROUNDS
#define MAX_ROWS 40

// "conv" is conv_png_format.decode; all others are compared with "libpng", one of its two paths.
enum kind { DECODE_CONV, DECODE_LIBPNG, DECODE_COMPETITOR, ENCODE };

struct row {
    enum kind kind;
    const char *name;
    int level;                                // ENCODE
    const struct conv_competitor *competitor; // DECODE_COMPETITOR
    struct conv_codec *codec;
    struct conv_buffer pixels; // DECODE_LIBPNG, DECODE_COMPETITOR
    uint64_t ns[ROUNDS];       // of all images
    int rounds;
    uint64_t bytes;          // ENCODE: of all files of one round
    struct conv_err skipped; // why it is not measured; CONV_OK: it is
};

struct bench {
    const struct conv_bench_options *options;
    struct conv_bench_images all;
    struct row rows[MAX_ROWS];
    int row_count;
    struct conv_image reference, got; // planes of the current image, of libpng and of a row
    struct conv_buffer planes[2], scratch;
    struct conv_bench_reader reader;
};

// If a level is requested, only that one is measured, and libpng's level 1, with which all are
// compared.
static const struct {
    const char *name;
    int level;
    bool on_request; // measured if its level is requested
} encoders[] = {
    {"fast", 0, false},  {"fast", 1, false},   {"fast", 2, false},   {"fast", 3, false},
    {"fast", 4, false},  {"fast", 5, false},   {"fast", 6, false},   {"fast", 7, false},
    {"fast", 8, false},  {"fast", 9, false},   {"fast", 10, false},  {"fast", 11, false},
    {"fast", 12, false}, {"libpng", 1, false}, {"libpng", 2, true},  {"libpng", 3, true},
    {"libpng", 4, true}, {"libpng", 5, true},  {"libpng", 6, false}, {"libpng", 7, true},
    {"libpng", 8, true}, {"libpng", 9, false}, {"stb", 8, false},
};

// --- list of coders ------------------------------------------------------------------------------

static struct row *add_row(struct bench *bench, enum kind kind, const char *name)
{
    struct row *row = &bench->rows[bench->row_count++];
    *row = (struct row){.kind = kind, .name = name};
    return row;
}

static enum conv_status add_rows(struct bench *bench, struct conv_err *err)
{
    struct row *row = add_row(bench, DECODE_CONV, "conv");
    struct conv_codec_config config = {.level = -1};
    enum conv_status status = conv_codec_open(&row->codec, &conv_png_format, &config, err);
    add_row(bench, DECODE_LIBPNG, "libpng");
    for (const struct conv_competitor *other = conv_competitors; other->name; other++)
        add_row(bench, DECODE_COMPETITOR, other->name)->competitor = other;
    for (size_t i = 0; i < sizeof encoders / sizeof encoders[0] && !status; i++) {
        config.level = encoders[i].level;
        bool base = config.level == 1 && strcmp(encoders[i].name, "libpng") == 0;
        int asked = bench->options->choice->outputs.codec.level;
        if (!base && (asked < 0 ? encoders[i].on_request : asked != config.level))
            continue;
        if (conv_png_parse_encoder(&config.encoder, encoders[i].name, NULL))
            continue;
        row = add_row(bench, ENCODE, encoders[i].name);
        row->level = config.level;
        status = conv_codec_open(&row->codec, &conv_png_format, &config, err);
    }
    return status;
}

// --- one image, one coder ----------------------------------------------------------------------

static void split_pixels(const struct bench *bench, const struct row *row)
{
    size_t bytes = conv_interleave_bytes(&bench->got);
    for (int y = 0; y < bench->got.height; y++)
        conv_interleave_split(&bench->got, y, row->pixels.data + (size_t)y * bytes);
}

static enum conv_status run_row(struct bench *bench, struct row *row, int round,
                                const struct conv_bench_image *image, struct conv_err *err)
{
    struct conv_encoded bytes = {0};
    const struct conv_file *file = &image->file;
    const struct conv_image_header *header = &image->header;
    enum conv_status status = CONV_OK;
    uint64_t start = conv_clock_thread_ns();
    switch (row->kind) {
    case DECODE_CONV:
        status = conv_png_format.decode(row->codec, file->data, file->size, header, &bench->got,
                                        NULL, err);
        break;
    case DECODE_LIBPNG:
        status = conv_libpng_decode(&row->pixels, file->data, file->size, header, &bench->got, NULL,
                                    NULL, err);
        break;
    case DECODE_COMPETITOR:
        status = conv_competitor_decode(row->competitor, &row->pixels, file->data, file->size,
                                        header, err);
        break;
    case ENCODE:
        status = conv_png_format.encode(row->codec, &bench->reference, NULL, 0,
                                        bench->reference.height, &bytes, err);
        break;
    }
    row->ns[round] += conv_clock_thread_ns() - start;
    if (status)
        return status;
    row->bytes += round == 0 ? bytes.size : 0;
    if (row->kind == DECODE_COMPETITOR)
        split_pixels(bench, row);
    // A coder's bytes are the same in every round, and decoding them takes longer than some coders.
    if (row->kind == ENCODE)
        return round == 0 ? conv_bench_read_back(&bench->reader, &bytes, &bench->reference, err)
                          : CONV_OK;
    struct conv_image_difference first;
    return conv_image_differ(&bench->reference, &bench->got, &first)
               ? conv_err_format(err, "WRONG pixels")
               : CONV_OK;
}

static bool has_enough(const struct row *row, int round)
{
    uint64_t ns = 0;
    for (int i = 0; i < round; i++)
        ns += row->ns[i];
    return row->skipped.status || (round >= LEAST_ROUNDS && ns >= ENOUGH_NS);
}

static void show_progress(const struct bench *bench, int round, int image)
{
    char text[64];
    snprintf(text, sizeof text, "round %d of %d, image %d of %d", round + 1, ROUNDS, image + 1,
             bench->all.count);
    conv_bench_progress(bench->options->show_progress, round < ROUNDS ? text : NULL);
}

static enum conv_status run_round(struct bench *bench, int round, struct conv_err *err)
{
    bool enough[MAX_ROWS];
    for (int r = 0; r < bench->row_count; r++) {
        enough[r] = has_enough(&bench->rows[r], round);
        bench->rows[r].rounds += !enough[r];
    }
    for (int i = 0; i < bench->all.count; i++) {
        show_progress(bench, round, i);
        const struct conv_bench_image *image = &bench->all.images[i];
        conv_image_lay_out(&bench->reference, &image->header.shape, bench->planes[0].data);
        conv_image_lay_out(&bench->got, &image->header.shape, bench->planes[1].data);
        enum conv_status status =
            conv_libpng_decode(&bench->scratch, image->file.data, image->file.size, &image->header,
                               &bench->reference, NULL, NULL, err);
        if (status)
            return status;
        for (int r = 0; r < bench->row_count; r++) {
            struct row *row = &bench->rows[r];
            if (enough[r] || row->skipped.status)
                continue;
            memset(bench->planes[1].data, 0xA5, bench->all.most_bytes);
            run_row(bench, row, round, image, &row->skipped);
        }
    }
    return CONV_OK;
}

// --- the table -----------------------------------------------------------------------------------

static struct conv_stat times(const struct row *row)
{
    double ns[ROUNDS];
    for (int round = 0; round < row->rounds; round++)
        ns[round] = (double)row->ns[round];
    return conv_stat_sort(ns, row->rounds);
}

static double rate(const struct bench *bench, double ns)
{
    return (double)bench->all.samples / ns * 1e3;
}

// The row with which speed and size are compared: libpng's decoder, or libpng's level 1.
static const struct row *find_base(const struct bench *bench, bool encode)
{
    for (int i = 0; i < bench->row_count; i++) {
        const struct row *row = &bench->rows[i];
        if (encode ? row->kind == ENCODE && row->level == 1 && strcmp(row->name, "libpng") == 0
                   : row->kind == DECODE_LIBPNG)
            return row->skipped.status ? NULL : row;
    }
    return NULL;
}

static void print_row(const struct bench *bench, const struct row *row)
{
    bool encode = row->kind == ENCODE;
    const struct row *base = find_base(bench, encode);
    char name[32];
    if (encode)
        snprintf(name, sizeof name, "%s -z %d", row->name, row->level);
    else
        snprintf(name, sizeof name, "%s", row->name);
    if (row->skipped.status) {
        printf("%-12s skipped: ", name);
        conv_text_terminal(stdout, row->skipped.text);
        putchar('\n');
        return;
    }
    struct conv_stat ns = times(row);
    printf("%-12s %8.1f %8.1f %8.1f %4d", name, rate(bench, ns.median), rate(bench, ns.max),
           rate(bench, ns.min), row->rounds);
    if (base)
        printf(" %7.2fx", times(base).median / ns.median);
    if (encode) {
        printf(" %12llu %8.4f", (unsigned long long)row->bytes,
               (double)row->bytes / (double)bench->all.samples);
        if (base)
            printf(" %8.4f", (double)row->bytes / (double)base->bytes);
    }
    putchar('\n');
}

static void print_table(const struct bench *bench)
{
    bool encode = false;
    printf("%d %s, %.1f Mpix, %.1f MB of samples; CPU time of one core; MB/s: median, slowest and "
           "fastest run\n%-12s %8s %8s %8s %4s %8s\n",
           bench->all.count, bench->all.count == 1 ? "image" : "images",
           (double)bench->all.pixels / 1e6, (double)bench->all.samples / 1e6, "decode", "MB/s",
           "slowest", "fastest", "runs", "libpng");
    for (int i = 0; i < bench->row_count; i++) {
        if (bench->rows[i].kind == ENCODE && !encode) {
            encode = true;
            printf("%-12s %8s %8s %8s %4s %8s %12s %8s %8s\n", "encode", "MB/s", "slowest",
                   "fastest", "runs", "libpng 1", "bytes", "ratio", "libpng 1");
        }
        print_row(bench, &bench->rows[i]);
    }
}

static void print_json(const struct bench *bench)
{
    for (int i = 0; i < bench->row_count; i++) {
        const struct row *row = &bench->rows[i];
        bool encode = row->kind == ENCODE;
        printf("{\"type\":\"bench-codec\",\"direction\":\"%s\",\"name\":\"%s\"",
               encode ? "encode" : "decode", row->name);
        if (encode)
            printf(",\"level\":%d", row->level);
        if (row->skipped.status) {
            fputs(",\"error\":", stdout);
            conv_json_string(stdout, row->skipped.text);
        } else {
            struct conv_stat ns = times(row);
            printf(",\"mb_s\":%.2f,\"mb_s_min\":%.2f,\"mb_s_max\":%.2f", rate(bench, ns.median),
                   rate(bench, ns.max), rate(bench, ns.min));
            if (encode)
                printf(",\"bytes\":%llu,\"ratio\":%.6f", (unsigned long long)row->bytes,
                       (double)row->bytes / (double)bench->all.samples);
        }
        printf(",\"images\":%d,\"sample_bytes\":%llu,\"rounds\":%d}\n", bench->all.count,
               (unsigned long long)bench->all.samples, row->rounds);
    }
}

// With wrong pixels the command fails, after the table.
static enum conv_status find_wrong(const struct bench *bench, struct conv_err *err)
{
    for (int i = 0; i < bench->row_count; i++) {
        const struct row *row = &bench->rows[i];
        if (row->skipped.status && row->skipped.status != CONV_ERR_UNSUPPORTED)
            return conv_err_set(err, row->skipped.status, "%s failed: %s", row->name,
                                row->skipped.text);
    }
    return CONV_OK;
}

static void close_bench(struct bench *bench)
{
    for (int i = 0; i < bench->row_count; i++) {
        conv_codec_close(bench->rows[i].codec);
        conv_buffer_free(&bench->rows[i].pixels);
    }
    conv_bench_images_free(&bench->all);
    conv_buffer_free(&bench->planes[0]);
    conv_buffer_free(&bench->planes[1]);
    conv_buffer_free(&bench->scratch);
    conv_bench_reader_free(&bench->reader);
}

// Many images at once, on threads or on a device.
static enum conv_status bench_many(const struct conv_bench_options *options, struct conv_err *err)
{
    struct conv_bench_images images = {0};
    enum conv_status status = conv_bench_images_load(&images, options, err);
    if (!status && options->on_device) {
        status = conv_bench_codec_device(options, &images, err);
    } else if (!status) {
        status = conv_bench_images_filter(&images, options, err);
        if (!status)
            status = conv_bench_codec_jobs(options, &images, err);
    }
    conv_bench_images_free(&images);
    return status;
}

enum conv_status conv_bench_codec(const struct conv_bench_options *options, struct conv_err *err)
{
    struct bench bench = {.options = options};
    if (options->jobs || options->on_device)
        return bench_many(options, err);
    enum conv_status status = conv_bench_images_load(&bench.all, options, err);
    if (!status)
        status = add_rows(&bench, err);
    if (!status && !(conv_buffer_reserve(&bench.planes[0], bench.all.most_bytes) &&
                     conv_buffer_reserve(&bench.planes[1], bench.all.most_bytes)))
        status = conv_err_memory(err, "out of memory");
    for (int round = 0; round < ROUNDS && !status; round++)
        status = run_round(&bench, round, err);
    show_progress(&bench, ROUNDS, 0);
    if (!status) {
        if (options->format == CONV_BENCH_JSON)
            print_json(&bench);
        else
            print_table(&bench);
        status = find_wrong(&bench, err);
    }
    close_bench(&bench);
    return status;
}
