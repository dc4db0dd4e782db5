// SPDX-License-Identifier: MIT
// Searches for PNG files that cost conv much more than libpng, in time or in memory: it changes
// files as an attacker would (png_mutate) and keeps those with the highest ratio. Prints each new
// worst file and writes it to FOUND. tools/fuzz-cost runs it; test_png_cost.c holds its findings.
//   search_cost SECONDS SEED FOUND FILE...      0 seconds: measures the files
#include <inttypes.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "png/png.h"
#include "support/oracle.h"
#include "support/png_cost.h"
#include "support/png_mutate.h"
#include "support/random.h"
#include "support/test_image.h"

#define ROOM ((size_t)1 << 18) // most bytes of a file
#define MOST_PIXELS (1 << 20)
#define POOL 48
#define LEAST_NS 60000.0 // decoding is repeated for at least this time
#define RUNS 4           // the shortest of them counts
// Memory that any file may cost in addition.
#define ANYWAY_BYTES ((size_t)256 << 10)

// --- memory --------------------------------------------------------------------------------------

// All allocations of the process, libpng's too, come here.
static atomic_ptrdiff_t used, peak;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static void *counted(void *memory)
{
    ptrdiff_t size = (ptrdiff_t)malloc_usable_size(memory);
    ptrdiff_t now = atomic_fetch_add(&used, size) + size;
    if (now > atomic_load(&peak))
        atomic_store(&peak, now);
    return memory;
}

void *malloc(size_t size)
{
    return counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return counted(__libc_calloc(count, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return counted(__libc_memalign(alignment, size));
}

void free(void *memory)
{
    atomic_fetch_sub(&used, (ptrdiff_t)malloc_usable_size(memory));
    __libc_free(memory);
}

void *realloc(void *memory, size_t size)
{
    ptrdiff_t before = (ptrdiff_t)malloc_usable_size(memory);
    void *moved = __libc_realloc(memory, size);
    if (moved || size == 0)
        atomic_fetch_sub(&used, before);
    return counted(moved);
}

// --- the two decoders ----------------------------------------------------------------------------

struct file {
    uint8_t *data;
    size_t size;
    double ratio;
};

static bool decode_ours(const struct file *file, struct conv_codec *codec,
                        struct conv_metadata *meta, const struct conv_image *planes)
{
    struct conv_image_header header;
    return !conv_png_format.probe(file->data, file->size, &header, NULL) &&
           !conv_png_format.check_size(file->data, file->size, &header, NULL) &&
           !conv_png_format.is_animated(file->data, file->size) &&
           !conv_png_format.collect(file->data, file->size, &header, false, meta, NULL) &&
           !conv_png_format.decode(codec, file->data, file->size, &header, planes, NULL);
}

// --- cost ----------------------------------------------------------------------------------------

struct subject {
    struct conv_codec *codec;
    struct conv_metadata meta;
    struct conv_image planes;
    uint8_t **rows;
    bool good;
};

static double time_ours(const struct file *file, struct subject *subject, double about)
{
    int turns = 1 + (int)(LEAST_NS / about);
    double start = png_cost_now_ns();
    for (int i = 0; i < turns; i++)
        subject->good = decode_ours(file, subject->codec, &subject->meta, &subject->planes);
    return (png_cost_now_ns() - start) / turns;
}

static double time_libpng(const struct file *file, struct subject *subject, double about)
{
    int turns = 1 + (int)(LEAST_NS / about);
    double start = png_cost_now_ns();
    for (int i = 0; i < turns; i++)
        png_cost_libpng(file->data, file->size, subject->rows);
    return (png_cost_now_ns() - start) / turns;
}

static double ratio_of(const struct file *file, const struct subject *subject, double ours,
                       double libpng)
{
    return (ours - png_cost_allowed_ns(subject->good, file->size)) / libpng;
}

// Measures once, and again only if the ratio seems as high as `worth`.
static double measure_time(const struct file *file, struct subject *subject, double worth)
{
    double ours = time_ours(file, subject, 1e9), libpng = time_libpng(file, subject, 1e9);
    for (int run = 0; run < RUNS && ratio_of(file, subject, ours, libpng) > worth; run++) {
        double again = time_ours(file, subject, ours);
        ours = again < ours ? again : ours;
        again = time_libpng(file, subject, libpng);
        libpng = run == 0 || again < libpng ? again : libpng; // the first was cold
    }
    return ratio_of(file, subject, ours, libpng);
}

// Peak of ours over that of libpng and the bytes of file and image, which conv holds in any case.
static double measure_memory(const struct file *file, struct subject *subject, size_t image)
{
    struct conv_codec_config config = {.level = -1};
    struct conv_codec *codec;
    struct conv_metadata meta = {0};
    ptrdiff_t before = atomic_load(&used);
    atomic_store(&peak, before);
    png_cost_libpng(file->data, file->size, subject->rows);
    size_t libpng = (size_t)(atomic_load(&peak) - before);
    if (conv_png_format.open(&codec, &config, NULL))
        return 0;
    before = atomic_load(&used); // the encoder's tables are there for every file
    atomic_store(&peak, before);
    decode_ours(file, codec, &meta, &subject->planes);
    size_t ours = (size_t)(atomic_load(&peak) - before);
    conv_png_format.close(codec);
    conv_metadata_free(&meta);
    return ours < ANYWAY_BYTES
               ? 0
               : (double)(ours - ANYWAY_BYTES) / (double)(libpng + file->size + image);
}

static double measure(const struct file *file, struct conv_codec *codec, double worth,
                      double *memory)
{
    struct conv_image_header header;
    struct subject subject = {.codec = codec};
    *memory = 0;
    if (conv_png_format.probe(file->data, file->size, &header, NULL) ||
        (uint64_t)header.shape.width * (uint64_t)header.shape.height > MOST_PIXELS)
        return 0;
    size_t row = (size_t)header.shape.width * 8, image = row * (size_t)header.shape.height;
    subject.planes = header.shape;
    image_alloc(&subject.planes, 0);
    uint8_t *samples = malloc(image);
    subject.rows = malloc((size_t)header.shape.height * sizeof *subject.rows);
    if (!samples || !subject.rows)
        exit(1);
    for (size_t y = 0; y < (size_t)header.shape.height; y++)
        subject.rows[y] = samples + y * row;
    double ratio = measure_time(file, &subject, worth);
    *memory = measure_memory(file, &subject, conv_image_bytes(&header.shape));
    free(subject.rows);
    free(samples);
    image_free(&subject.planes);
    conv_metadata_free(&subject.meta);
    return ratio;
}

// --- the search ----------------------------------------------------------------------------------

static struct file pool[POOL];
static int count;

static void keep(const struct file *file, double ratio)
{
    int place = count;
    if (count == POOL) { // instead of the cheapest
        place = 0;
        for (int i = 1; i < POOL; i++)
            place = pool[i].ratio < pool[place].ratio ? i : place;
        if (pool[place].ratio >= ratio)
            return;
        free(pool[place].data);
    } else {
        count++;
    }
    pool[place] = (struct file){malloc(file->size + 1), file->size, ratio};
    if (!pool[place].data)
        exit(1);
    memcpy(pool[place].data, file->data, file->size);
}

static void save(const char *folder, const char *kind, const struct file *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/worst-%s.png", folder, kind);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(file->data, 1, file->size, out) != file->size)
        perror(path);
    if (out && fclose(out))
        perror(path);
}

static void describe(const char *kind, double ratio, const struct file *file)
{
    struct conv_image_header h = {0};
    conv_png_format.probe(file->data, file->size, &h, NULL);
    printf("%s %.2f: %dx%d type %d depth %d%s, %zu bytes\n", kind, ratio, h.shape.width,
           h.shape.height, h.png.color_type, h.png.bit_depth, h.png.interlaced ? " interlaced" : "",
           file->size);
    fflush(stdout);
}

static bool load(struct file *file, const char *path)
{
    FILE *in = fopen(path, "rb");
    if (!in)
        return false;
    file->size = fread(file->data, 1, ROOM, in);
    fclose(in);
    return file->size > 0;
}

// Changes one of the pool's files at random.
static void change(struct file *file, uint64_t *random)
{
    static uint8_t inflated[16 << 20];
    const struct file *parent = &pool[random_below(random, (unsigned)count)];
    memcpy(file->data, parent->data, parent->size);
    file->size = parent->size;
    for (unsigned n = 1 + random_below(random, 4); n > 0; n--)
        file->size = png_mutate(file->data, file->size, ROOM, (uint32_t)random_bits(random), NULL);
    if (random_below(random, 2))
        oracle_repair(file->data, file->size, inflated, sizeof inflated);
}

// Reports the file and writes it if it is the worst so far.
static void note_worst(double *worst, double ratio, const char *kind, const struct file *file,
                       const char *folder)
{
    if (ratio <= *worst)
        return;
    *worst = ratio;
    describe(kind, ratio, file);
    save(folder, kind, file);
}

int main(int argc, char **argv)
{
    struct file file = {.data = malloc(ROOM)};
    struct conv_codec_config config = {.level = -1};
    struct conv_codec *codec;
    if (argc < 5 || !file.data || conv_png_format.open(&codec, &config, NULL)) {
        fprintf(stderr, "usage: search_cost SECONDS SEED FOUND FILE...\n");
        return 2;
    }
    time_t end = time(NULL) + atoi(argv[1]);
    uint64_t random = strtoull(argv[2], NULL, 10), tries = 0;
    double memory, worst = 0, worst_memory = 0;
    for (int i = 4; i < argc; i++) {
        if (!load(&file, argv[i]))
            continue;
        keep(&file, measure(&file, codec, 0, &memory));
        if (atoi(argv[1]) == 0) { // measures the files, and searches for nothing
            printf("%s: ", argv[i]);
            describe("time", pool[count - 1].ratio, &file);
            describe("memory", memory, &file);
        }
    }
    for (; time(NULL) < end && count > 0; tries++) {
        change(&file, &random);
        double ratio = measure(&file, codec, worst * 0.7, &memory);
        keep(&file, ratio);
        note_worst(&worst, ratio, "time", &file, argv[3]);
        note_worst(&worst_memory, memory, "memory", &file, argv[3]);
    }
    printf("%" PRIu64 " files tried; worst time %.2f times libpng's, worst memory %.2f times "
           "libpng's, file's and image's together\n",
           tries, worst, worst_memory);
    conv_png_format.close(codec);
    for (int i = 0; i < count; i++)
        free(pool[i].data);
    free(file.data);
    return worst > 2 || worst_memory > 1;
}
