// SPDX-License-Identifier: MIT
// The encoder of src/png/cuda/ on random batches, whose chunks are compared with zlib and libpng.
// The same images in another batch must produce the same bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "check_codec.h"
#include "png/chunk.h"
#include "png/cuda/cuda_png.h"
#include "png/png.h"
#include "support/device.h"
#include "support/png_make.h"
#include "support/test_image.h"

#define MOST_IMAGES 12
#ifndef CHECK_MANY_ROWS
#define CHECK_MANY_ROWS 1 // 0: not 65,536 rows at once, to save time
#endif
#ifndef CHECK_CASE_WORK
#define CHECK_CASE_WORK SIZE_MAX // for all images of a case, see work_of()
#endif
#define LAUNCHES 7 // for any batch

// Planes, table and memory of a batch, ready to run.
struct run {
    int count;
    struct conv_encode_image *images;
    struct device_memory memory; // each plane is a piece
    struct conv_encode_batch batch;
};

struct encoded {
    uint8_t *output;
    struct conv_encode_result *results;
};

// --- a batch on the device -----------------------------------------------------------------------

static void free_run(struct run *run)
{
    device_free(&run->memory);
    free(run->images);
}

static void upload_planes(struct run *run, int i, const struct conv_image *image)
{
    struct conv_encode_image *entry = &run->images[i];
    *entry = (struct conv_encode_image){
        .stride = image->plane[0].stride,
        .width = image->width,
        .height = image->height,
        .channels = image->channels,
        .depth = image->depth,
    };
    for (int c = 0; c < image->channels; c++) {
        size_t size = (size_t)image->plane[c].stride * (size_t)image->height;
        entry->plane[c] = device_put(&run->memory, image->plane[c].data, size, size, "planes");
    }
}

// Prints and returns false if CUDA fails; free_run in any case.
static bool open_run(struct run *run, const struct conv_image *images, int count)
{
    *run = (struct run){.count = count};
    run->images = calloc((size_t)count, sizeof *run->images);
    if (!run->images)
        return false;
    for (int i = 0; i < count; i++)
        upload_planes(run, i, &images[i]);
    struct conv_encode_plan *plan = &run->batch.plan;
    if (conv_cuda_encode_plan(plan, run->images, count)) {
        printf("FAILED: no plan for %d images\n", count);
        return false;
    }
    struct device_memory *memory = &run->memory;
    size_t table = (size_t)count * sizeof *run->images;
    size_t results = (size_t)count * sizeof(struct conv_encode_result);
    run->batch.d_images = (void *)device_put(memory, run->images, table, table, "table");
    run->batch.d_scratch = device_put(memory, NULL, 0, plan->scratch_bytes, "scratch memory");
    run->batch.output = device_take(memory, plan->output_bytes, "output");
    run->batch.results = (void *)device_take(memory, results, "results");
    return !memory->failed;
}

// After the batch has run. False if anything beside output or results was written.
static bool fetch_encoded(struct run *run, struct encoded *encoded)
{
    size_t results = (size_t)run->count * sizeof(struct conv_encode_result);
    size_t bytes = run->batch.plan.output_bytes;
    encoded->output = malloc(bytes);
    encoded->results = malloc(results);
    return encoded->output && encoded->results &&
           device_get(&run->memory, encoded->output, run->batch.output, bytes, "output") &&
           device_get(&run->memory, encoded->results, run->batch.results, results, "results") &&
           device_guards_hold(&run->memory);
}

static void free_encoded(struct encoded *encoded)
{
    free(encoded->output);
    free(encoded->results);
    *encoded = (struct encoded){0};
}

static void count_launch(void *context, const char *kernel)
{
    (void)kernel;
    ++*(int *)context;
}

static bool encode(const struct conv_image *images, int count, uint64_t seed,
                   struct encoded *encoded)
{
    struct run run;
    *encoded = (struct encoded){0};
#ifdef CONV_EMULATED
    emulated_seed(seed); // so that the case's seed also determines the order of threads
#else
    (void)seed;
#endif
    bool ok = open_run(&run, images, count);
    int launches = 0;
    run.batch.mark = count_launch;
    run.batch.context = &launches;
    if (ok && conv_cuda_encode(&run.batch)) {
        printf("FAILED: launch: %s\n", cudaGetErrorString(cudaGetLastError()));
        ok = false;
    }
    if (ok && launches != LAUNCHES) {
        printf("FAILED: %d launches for %d images\n", launches, count);
        ok = false;
    }
    ok = ok && device_finish(&run.memory, "encode") && fetch_encoded(&run, encoded);
    free_run(&run);
    return ok;
}

// --- results -------------------------------------------------------------------------------------

// Chunks follow each other with zeros between them, and nothing is written after the last.
static const char *check_packing(const struct encoded *encoded, int count, size_t room)
{
    uint64_t at = 0;
    for (int i = 0; i < count; i++) {
        const struct conv_encode_result *result = &encoded->results[i];
        if (result->offset != at || result->size > room - at)
            return "chunks are not packed";
        for (at += result->size; at % CONV_ENCODE_ALIGN; at++)
            if (encoded->output[at] != 0)
                return "no zeros behind a chunk";
    }
    for (; at < room; at++)
        if (encoded->output[at] != DEVICE_FILL)
            return "bytes behind the last chunk are written";
    return NULL;
}

// --- a chunk ------------------------------------------------------------------------------------

static size_t scanline_bytes(const struct conv_image *image)
{
    size_t row = (size_t)image->width * (size_t)(image->channels * (image->depth / 8)) + 1;
    return row * (size_t)image->height;
}

// By zlib the stream ends with its last byte and has all scanlines and no more.
static const char *inflate_all(const struct conv_image *image, const uint8_t *data, size_t size)
{
    size_t all = scanline_bytes(image);
    uint8_t *scanlines = malloc(all + 1);
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data,
                       .avail_in = (uInt)size,
                       .next_out = scanlines,
                       .avail_out = (uInt)all + 1};
    const char *wrong = NULL;
    if (!scanlines || inflateInit(&stream) != Z_OK)
        wrong = "no memory to inflate";
    else if (inflate(&stream, Z_FINISH) != Z_STREAM_END)
        wrong = stream.msg ? stream.msg : "the zlib stream has no end";
    else if (stream.avail_in != 0)
        wrong = "bytes behind the zlib stream";
    else if (stream.total_out != all)
        wrong = "not as many scanlines as the image has";
    inflateEnd(&stream);
    free(scanlines);
    return wrong;
}

static const char *check_chunk(const struct conv_image *image, const uint8_t *chunk, size_t size)
{
    if (size < CONV_CHUNK_FRAME + 6 ||
        size > conv_cuda_encode_bound(image->width, image->height, image->channels, image->depth))
        return "a size out of bounds";
    if (conv_chunk_read_u32(chunk) != size - CONV_CHUNK_FRAME)
        return "the chunk's length is not its data's";
    if (memcmp(chunk + 4, "IDAT\x78\x01", 6) != 0)
        return "no IDAT with a zlib stream";
    if (conv_chunk_read_u32(chunk + size - 4) != crc32(0, chunk + 4, (uInt)size - 8))
        return "wrong CRC";
    return inflate_all(image, chunk + 8, size - CONV_CHUNK_FRAME);
}

// Every sample as libpng decodes it. *message is its error.
static bool same_pixels(const struct conv_image *image, const struct png_file *file, char *message)
{
    struct conv_image_header header;
    struct conv_buffer rows = {0};
    struct conv_err err = {0};
    bool ok = false;
    if (conv_png_format.probe(file->data, file->size, &header, &err) == CONV_OK) {
        struct conv_image back = header.shape;
        image_alloc(&back, 0);
        if (!conv_libpng_decode(&rows, file->data, file->size, &header, &back, NULL, NULL, &err)) {
            ok = image_equal(image, &back);
            snprintf(err.text, sizeof err.text, "another image");
        }
        image_free(&back);
    }
    snprintf(message, 80, "%.79s", err.text);
    conv_buffer_free(&rows);
    return ok;
}

// True if an IDAT chunk with its frame has the right CRC, inflates to all scanlines with the right
// Adler-32, and libpng decodes it to the image; else *message says what is wrong.
static bool check_file(const struct conv_image *image, const uint8_t *chunk, size_t size,
                       char message[80])
{
    static const int color_types[] = {0, 0, 4, 2, 6};
    const char *wrong = check_chunk(image, chunk, size);
    if (wrong) {
        snprintf(message, 80, "%s", wrong);
        return false;
    }
    struct png_file file = {0};
    png_make_head(&file, image->width, image->height, image->depth, color_types[image->channels]);
    png_make_bytes(&file, chunk, size);
    png_make_chunk(&file, "IEND", "", 0);
    bool ok = same_pixels(image, &file, message);
    png_make_free(&file);
    return ok;
}

// --- random batches ------------------------------------------------------------------------------

struct check_case {
    int count;
    struct conv_image images[MOST_IMAGES];
    enum check_kind kinds[MOST_IMAGES];
};

// The time of an emulated device in units of the time for a byte; a row takes as long as 1,000
// bytes.
static size_t work_of(const struct conv_image *image)
{
    return (size_t)image->height *
           ((size_t)image->width * (size_t)image->channels * (size_t)image->depth / 8 + 1000);
}

static void draw_case(struct check_case *c, uint64_t seed)
{
    uint64_t state = seed;
    c->count = check_draw_int(&state, 0, 3) ? check_draw_int(&state, 1, 3)
                                            : check_draw_int(&state, 1, MOST_IMAGES);
    for (int i = 0; i < c->count; i++) {
        do
            check_draw_shape(&c->images[i], &state);
        while (work_of(&c->images[i]) > CHECK_CASE_WORK / (size_t)c->count);
        c->kinds[i] = (enum check_kind)check_draw_int(&state, 0, CHECK_KINDS - 1);
        check_draw_image(&c->images[i], c->kinds[i], &state);
    }
}

static bool report(const struct check_case *c, int i, const char *message)
{
    const struct conv_image *image = &c->images[i];
    printf("FAILED: image %d of %d, %s, %dx%d, %d channels, %d bits: %s\n", i, c->count,
           check_kind_name(c->kinds[i]), image->width, image->height, image->channels, image->depth,
           message);
    return false;
}

// Upper bounds of sizes. One colour becomes runs, interrupted by the filter byte of each row. A
// photograph gets a filter and codes of its own: without either it takes as many bytes as it has.
static bool is_small(const struct check_case *c, int i, size_t size)
{
    const struct conv_image *image = &c->images[i];
    size_t plain = scanline_bytes(image);
    if (c->kinds[i] == CHECK_PHOTO)
        return size < 400 + plain / 10 * 9;
    return c->kinds[i] != CHECK_FLAT || size < 200 + 4 * (size_t)image->height + plain / 100;
}

static bool check_encoded(const struct check_case *c, const struct encoded *encoded, size_t room)
{
    const char *wrong = check_packing(encoded, c->count, room);
    if (wrong)
        return report(c, 0, wrong);
    for (int i = 0; i < c->count; i++) {
        char message[80] = "";
        const struct conv_encode_result *result = &encoded->results[i];
        if (!check_file(&c->images[i], encoded->output + result->offset, result->size, message))
            return report(c, i, message);
        if (!is_small(c, i, result->size))
            return report(c, i, "it takes too many bytes");
    }
    return true;
}

static size_t room_of(const struct check_case *c)
{
    size_t room = 0;
    for (int i = 0; i < c->count; i++)
        room += conv_cuda_encode_bound(c->images[i].width, c->images[i].height,
                                       c->images[i].channels, c->images[i].depth);
    return room;
}

// Replaces the bytes after rows by other noise.
static void change_padding(struct conv_image *image, uint64_t *state)
{
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < image->height; y++) {
            uint8_t *row = image->plane[c].data + y * image->plane[c].stride;
            for (ptrdiff_t i = (ptrdiff_t)image->width * (image->depth / 8);
                 i < image->plane[c].stride; i++)
                row[i] = (uint8_t)random_bits(state);
        }
}

// Encodes the images in reverse order, without the first one: the bytes must be the same.
static bool check_again(struct check_case *c, const struct encoded *encoded, uint64_t seed)
{
    struct conv_image images[MOST_IMAGES];
    int count = c->count > 1 ? c->count - 1 : 1;
    uint64_t state = ~seed;
    for (int i = 0; i < count; i++) {
        change_padding(&c->images[c->count - 1 - i], &state);
        images[i] = c->images[c->count - 1 - i];
    }
    struct encoded again;
    bool ok = encode(images, count, seed + 1, &again);
    for (int i = 0; i < count && ok; i++) {
        const struct conv_encode_result *one = &encoded->results[c->count - 1 - i];
        const struct conv_encode_result *two = &again.results[i];
        if (one->size != two->size ||
            memcmp(encoded->output + one->offset, again.output + two->offset, one->size) != 0)
            ok = report(c, c->count - 1 - i, "other bytes in another batch");
    }
    free_encoded(&again);
    return ok;
}

static bool check_round(struct check_case *c, uint64_t seed)
{
    struct encoded encoded;
    bool ok = encode(c->images, c->count, seed, &encoded) &&
              check_encoded(c, &encoded, room_of(c)) && check_again(c, &encoded, seed);
    free_encoded(&encoded);
    for (int i = 0; i < c->count; i++)
        image_free(&c->images[i]);
    if (!ok)
        printf("  again: --part encode --seed %llu --rounds 1\n", (unsigned long long)seed);
    return ok;
}

// Rows longer than a stage of the filter kernel, a deflate block or a span.
static bool check_large(uint64_t seed)
{
    static const struct {
        int width, height, channels, depth;
    } shapes[] = {{200, 100, 3, 8}, {33000, 2, 1, 8}, {16500, 2, 1, 16}, {3, 4500, 4, 8}};
    bool ok = true;
    for (int i = 0; i < 4 && ok; i++) {
        struct check_case c = {.count = 1};
        uint64_t state = seed + (uint64_t)i;
        c.images[0] = (struct conv_image){.width = shapes[i].width,
                                          .height = shapes[i].height,
                                          .channels = shapes[i].channels,
                                          .depth = shapes[i].depth};
        c.kinds[0] = (enum check_kind)check_draw_int(&state, 0, CHECK_KINDS - 1);
        check_draw_image(&c.images[0], c.kinds[0], &state);
        ok = check_round(&c, seed);
    }
    return ok;
}

// With this number of rows, a warp of filter_cost takes several, of more than one image. Without
// the first image, as check_again encodes them, each row gets a warp.
static bool check_many_rows(uint64_t seed)
{
    enum { COUNT = 9, HEIGHT = 65536 / (COUNT - 1) - 1 };
    struct check_case c = {.count = COUNT};
    uint64_t state = seed;
    for (int i = 0; i < COUNT; i++) {
        c.images[i] =
            (struct conv_image){.width = 6, .height = HEIGHT - i, .channels = 1, .depth = 8};
        c.kinds[i] = (enum check_kind)(i % CHECK_KINDS);
        check_draw_image(&c.images[i], c.kinds[i], &state);
    }
    return check_round(&c, seed);
}

static bool check_refusals(void)
{
    struct conv_encode_plan plan;
    struct conv_encode_image image = {
        .stride = 1 << 20, .width = 1 << 20, .height = 2049, .channels = 1, .depth = 8};
    bool ok = conv_cuda_encode_plan(&plan, &image, 1) == CONV_ERR_UNSUPPORTED &&
              conv_cuda_encode_bound(1 << 20, 2049, 1, 8) == 0 &&
              conv_cuda_encode_bound(0x7fffffff, 0x7fffffff, 4, 16) == 0;
    image.height = 2000;
    ok = ok && conv_cuda_encode_plan(&plan, &image, 1) == CONV_OK &&
         plan.output_bytes == conv_cuda_encode_bound(1 << 20, 2000, 1, 8) &&
         plan.output_bytes < (size_t)2040 << 20;
    if (!ok)
        printf("FAILED: images too large for a chunk are not told from others\n");
    return ok;
}

bool check_codec_encode(const struct check_options *options)
{
    uint64_t seed = options->seed;
    int rounds = options->rounds;
    bool ok = check_refusals();
    for (int i = 0; i < rounds && ok; i++) {
        struct check_case c;
        draw_case(&c, seed + (uint64_t)i);
        ok = check_round(&c, seed + (uint64_t)i);
    }
    if (rounds > 1)
        ok = ok && check_large(seed) && (!CHECK_MANY_ROWS || check_many_rows(seed));
    if (ok)
        printf("encode: %d batches of images came back\n", rounds);
    return ok;
}
