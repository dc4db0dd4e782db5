// SPDX-License-Identifier: MIT
// Times CUDA rows of the variant table on several works, each in one launch, and a device-to-device
// copy of the same bytes, by the rules of `conv bench kernels`: the copy takes turns with all rows
// of a work, the median of its times is the yardstick of all of them, and the level 2 cache is
// filled with something else before each run. The last work is that of `--image-size mix`.
// Each result is held against cuda_naive's, byte by byte, on the device.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "bench/bench_mix.h"
#include "image/image.h"
#include "kernels/stencil/cuda/cuda_variants.h"

#define RUNS 21
#define GUARD 0xa5

struct work {
    const char *name;
    std::vector<conv_stencil_plane> planes; // src and dst as offsets
    size_t bytes, samples;
};

static void fail(const char *what, cudaError_t error)
{
    fprintf(stderr, "bench_kernels_cuda: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        fail(what, error);
}

static void add_image(struct work *work, int width, int height)
{
    for (int p = 0; p < 3; p++) {
        struct conv_stencil_plane plane = {};
        plane.src = (const uint8_t *)work->bytes;
        plane.dst = (uint8_t *)work->bytes;
        plane.src_stride = plane.dst_stride = (int64_t)conv_image_stride(width, 8);
        plane.dst_spare = (uint32_t)(plane.dst_stride - width);
        plane.width = width;
        plane.height = height;
        work->planes.push_back(plane);
        work->bytes += conv_image_plane_bytes(width, height, 8);
        work->samples += (size_t)width * (size_t)height;
    }
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static std::vector<struct work> make_works(void)
{
    std::vector<struct work> works(5);
    works[0].name = "8192x8192x3";
    add_image(&works[0], 8192, 8192);
    works[1].name = "32 x 2880x1800x3";
    for (int i = 0; i < 32; i++)
        add_image(&works[1], 2880, 1800);
    works[2].name = "1000 x 300x300x3";
    for (int i = 0; i < 1000; i++)
        add_image(&works[2], 300, 300);
    works[3].name = "500 uniform sizes x3";
    uint32_t state = 1;
    add_image(&works[3], 1, 1);
    add_image(&works[3], 4000, 3000);
    for (int i = 2; i < 500; i++) {
        int width = 1 + (int)(next_random(&state) % 4000);
        add_image(&works[3], width, 1 + (int)(next_random(&state) % 3000));
    }
    works[4].name = "--image-size mix x3";
    struct conv_bench_size mix[CONV_BENCH_MIX_IMAGES];
    conv_bench_mix(mix, CONV_BENCH_MIX_IMAGES);
    for (const auto &size : mix)
        add_image(&works[4], size.width, size.height);
    return works;
}

static __global__ void fill(uint32_t *to, size_t words)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        uint64_t z = (i + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        to[i] = (uint32_t)(z >> 32);
    }
}

// A row of the grid for each plane.
static __global__ void count_differences(const struct conv_stencil_plane *planes,
                                         const uint8_t *dst, const uint8_t *expected, int size,
                                         unsigned long long *count)
{
    struct conv_stencil_plane plane = planes[blockIdx.y];
    const uint8_t *other = expected + (plane.dst - dst);
    for (int y = (int)blockIdx.x; y < plane.height; y += (int)gridDim.x)
        for (int x = (int)threadIdx.x; x < plane.width * size; x += (int)blockDim.x)
            if (plane.dst[y * plane.dst_stride + x] != other[y * plane.dst_stride + x])
                atomicAdd(count, 1ull);
}

struct device {
    uint8_t *d_src, *d_dst, *d_expected;
    struct conv_stencil_plane *d_planes;
    void *d_taps;
    unsigned long long *d_count;
    void *d_flush; // twice the level 2 cache
    size_t flush_bytes;
    cudaEvent_t start, stop;
};

// At 16 bits the planes' bytes are the same, and their samples half as many.
static void halve(std::vector<conv_stencil_plane> *planes)
{
    for (auto &plane : *planes) {
        plane.width = std::max(plane.width / 2, 1);
        plane.dst_spare = (uint32_t)(plane.dst_stride - 2 * plane.width);
    }
}

static bool launch(const struct conv_variant *row, const struct conv_stencil *stencil,
                   const struct work *work, const struct device *device, uint8_t *d_dst,
                   std::vector<conv_stencil_plane> *planes, struct conv_stencil_plan *plan,
                   struct conv_stencil_batch *batch)
{
    *planes = work->planes;
    if (stencil->depth == 16)
        halve(planes);
    for (auto &plane : *planes) {
        plane.src = device->d_src + (size_t)plane.src;
        plane.dst = d_dst + (size_t)plane.dst;
    }
    *batch = {};
    batch->planes = planes->data();
    batch->cuda.d_planes = device->d_planes;
    batch->count = (int)planes->size();
    batch->cuda.tiles = conv_stencil_tiles(row, planes->data(), batch->count);
    check(cudaMemcpy(device->d_planes, planes->data(), planes->size() * sizeof(planes->front()),
                     cudaMemcpyHostToDevice),
          "copy of planes");
    conv_stencil_plan_init(plan, row, stencil, NULL);
    return conv_cuda_upload(plan, device->d_taps) == CONV_OK && row->run(plan, batch) == CONV_OK;
}

// Milliseconds. Filling the cache also keeps the device busy while the host queues the rest, so
// that the events see the device alone.
template <typename Run> static float time_once(const struct device *device, Run run)
{
    float ms;
    check(cudaMemsetAsync(device->d_flush, 0, device->flush_bytes), "flush");
    check(cudaEventRecord(device->start), "event");
    run();
    check(cudaEventRecord(device->stop), "event");
    check(cudaEventSynchronize(device->stop), "kernel");
    check(cudaEventElapsedTime(&ms, device->start, device->stop), "event");
    return ms;
}

struct line {
    const char *filter, *row;
    std::vector<float> ms; // empty: does not fit
    bool wrong;
};

// Sorts the times.
static float median(std::vector<float> *ms)
{
    std::sort(ms->begin(), ms->end());
    return (*ms)[ms->size() / 2];
}

static void print_work(const struct work *work, std::vector<struct line> *lines,
                       std::vector<float> *copies)
{
    if (copies->empty()) {
        printf("%s: nothing fits\n", work->name);
        return;
    }
    double copy = median(copies);
    printf("%s: copy %.4f ms (%.4f to %.4f, %zu runs), %.0f GB/s\n", work->name, copy,
           copies->front(), copies->back(), copies->size(), 2e-6 * (double)work->samples / copy);
    for (auto &line : *lines) {
        if (line.ms.empty()) {
            printf("  %-18s %-21s does not fit\n", line.filter, line.row);
            continue;
        }
        double ms = median(&line.ms);
        printf("  %-18s %-21s %8.4f ms (%.4f to %.4f) %7.0f GB/s %6.3f of the copy%s\n",
               line.filter, line.row, ms, line.ms.front(), line.ms.back(),
               2e-6 * (double)work->samples / ms, copy / ms, line.wrong ? " WRONG" : "");
    }
    fflush(stdout);
}

static const struct conv_variant *find_row(const char *name)
{
    int count;
    const struct conv_variant *const *rows = conv_stencil_variants(&count);
    for (int r = 0; r < count; r++)
        if (strcmp(rows[r]->name, name) == 0)
            return rows[r];
    fprintf(stderr, "bench_kernels_cuda: no row is named %s\n", name);
    exit(2);
}

// A column times a row, or coefficients of which none follows from others.
static struct conv_filter make_large(int side, const char *kind)
{
    struct conv_filter f = {};
    snprintf(f.name, sizeof f.name, "%dx%d %s", side, side, kind);
    f.width = f.height = side;
    uint32_t state = (uint32_t)side;
    for (int i = 0; i < side * side; i++) {
        int x = i % side, y = i / side;
        int tent = (std::min(x, side - 1 - x) + 1) * (std::min(y, side - 1 - y) + 1);
        f.coef[i] = strstr(kind, "tent") ? tent : (int)(next_random(&state) % 10) - 3;
        f.scale += f.coef[i];
    }
    f.scale = std::max(f.scale, 1.0) + (strstr(kind, "real") ? 0.3 : 0);
    return f;
}

// 3x3 and 5x5 of each class of rounding; coefficients below 0 where the divisor is 18.
static std::vector<struct conv_filter> make_filters(void)
{
    static const struct {
        const char *name;
        int side, scale, offset, centre, ring;
    } forms[] = {
        {"3x3 /16", 3, 16, 0, 8, 1},
        {"3x3 /9", 3, 9, 0, 1, 1},
        {"3x3 /273", 3, 273, 0, 33, 30},
        {"3x3 /18 neg +128", 3, 18, 128, 26, -1},
        {"3x3 /18 neg", 3, 18, 0, 26, -1},
        {"5x5 /256", 5, 256, 0, 16, 10},
        {"5x5 /9", 5, 9, 0, -15, 1},
        {"5x5 /273", 5, 273, 0, 33, 10},
        {"5x5 /18 neg +128", 5, 18, 128, 42, -1},
        {"5x5 /18 neg", 5, 18, 0, 42, -1},
        {"7x7 /49", 7, 49, 0, 1, 1},
        {"9x9 /162", 9, 162, 0, 82, 1},
        // Another divisor makes these real, and two have 16 bits.
        {"3x3 real", 3, 16, 0, 8, 1},
        {"5x5 real", 5, 256, 0, 16, 10},
        {"7x7 real", 7, 49, 0, 1, 1},
        {"3x3 /16 16-bit", 3, 16, 0, 8, 1},
        {"5x5 /256 16-bit", 5, 256, 0, 16, 10},
        {"3x3 /273 16-bit", 3, 273, 0, 33, 30},
    };
    std::vector<struct conv_filter> filters;
    for (const auto &form : forms) {
        struct conv_filter f = {};
        snprintf(f.name, sizeof f.name, "%s", form.name);
        f.width = f.height = form.side;
        f.scale = form.scale + (strstr(form.name, "real") ? 0.3 : 0);
        f.offset = form.offset;
        for (int i = 0; i < form.side * form.side; i++) // no two rows alike
            f.coef[i] = form.ring < 0 || form.ring == 1 ? form.ring : form.ring + i % 3 - 1;
        f.coef[form.side * form.side / 2] = form.centre;
        filters.push_back(f);
    }
    for (int side : {7, 9, 11, 15, 21, 31})
        for (const char *kind : {"tent", "dense", "dense real", "tent 16-bit", "dense 16-bit"})
            filters.push_back(make_large(side, kind));
    return filters;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: bench_kernels_cuda FILTERS WORKS ROW...\n"
                        "  FILTERS, WORKS: e.g. 0,3,5 or all\n");
        auto filters = make_filters();
        for (size_t f = 0; f < filters.size(); f++)
            fprintf(stderr, "  filter %2zu %s\n", f, filters[f].name);
        auto works = make_works();
        for (size_t w = 0; w < works.size(); w++)
            fprintf(stderr, "  work %zu %s\n", w, works[w].name);
        return 2;
    }
    auto wanted = [](const char *list, size_t index) {
        if (strcmp(list, "all") == 0)
            return true;
        for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
            if ((size_t)atoi(p) == index)
                return true;
        return false;
    };
    auto works = make_works();
    auto filters = make_filters();
    size_t bytes = 0, planes_count = 0;
    for (size_t w = 0; w < works.size(); w++) {
        if (!wanted(argv[2], w))
            continue;
        bytes = std::max(bytes, works[w].bytes);
        planes_count = std::max(planes_count, works[w].planes.size());
    }
    struct device device = {};
    check(cudaMalloc(&device.d_src, bytes), "memory");
    check(cudaMalloc(&device.d_dst, bytes), "memory");
    check(cudaMalloc(&device.d_expected, bytes), "memory");
    check(cudaMalloc(&device.d_planes, planes_count * sizeof(struct conv_stencil_plane)), "memory");
    check(cudaMalloc(&device.d_taps, conv_cuda_upload_bytes()), "memory");
    check(cudaMalloc(&device.d_count, sizeof *device.d_count), "memory");
    check(cudaEventCreate(&device.start), "event");
    check(cudaEventCreate(&device.stop), "event");
    int cache = 0;
    check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0), "cache");
    device.flush_bytes = 2 * (size_t)std::max(cache, 1);
    check(cudaMalloc(&device.d_flush, device.flush_bytes), "memory");
    fill<<<1024, 256>>>((uint32_t *)device.d_src, bytes / 4);

    const struct conv_variant *naive = find_row("cuda_naive");
    std::vector<conv_stencil_plane> planes;
    static struct conv_stencil_plan plan;
    struct conv_stencil_batch batch;
    int wrong = 0;
    for (size_t w = 0; w < works.size(); w++) {
        if (!wanted(argv[2], w))
            continue;
        const struct work *work = &works[w];
        std::vector<struct line> lines;
        std::vector<float> copies;
        for (size_t f = 0; f < filters.size(); f++) {
            if (!wanted(argv[1], f))
                continue;
            struct conv_stencil stencil;
            int depth = strstr(filters[f].name, "16-bit") ? 16 : 8;
            conv_stencil_init(&stencil, &filters[f], depth, CONV_BORDER_REPLICATE, 0);
            check(cudaMemset(device.d_expected, GUARD, work->bytes), "memset");
            if (!launch(naive, &stencil, work, &device, device.d_expected, &planes, &plan, &batch))
                fail("cuda_naive", cudaGetLastError());
            check(cudaDeviceSynchronize(), "cuda_naive");
            for (int a = 3; a < argc; a++) {
                const struct conv_variant *row = find_row(argv[a]);
                if (row->can && !row->can(&stencil)) {
                    lines.push_back({filters[f].name, row->name, {}, false});
                    continue;
                }
                check(cudaMemset(device.d_dst, GUARD, work->bytes), "memset");
                if (!launch(row, &stencil, work, &device, device.d_dst, &planes, &plan, &batch))
                    fail(row->name, cudaGetLastError());
                unsigned long long count = 0;
                check(cudaMemset(device.d_count, 0, sizeof count), "memset");
                count_differences<<<dim3(16, (unsigned)batch.count), 256>>>(
                    device.d_planes, device.d_dst, device.d_expected, stencil.depth / 8,
                    device.d_count);
                check(cudaMemcpy(&count, device.d_count, sizeof count, cudaMemcpyDeviceToHost),
                      row->name);
                lines.push_back({filters[f].name, row->name, {}, count != 0});
                for (int r = -2; r < RUNS; r++) { // two to warm up
                    float copy = time_once(&device, [&] {
                        check(cudaMemcpyAsync(device.d_dst, device.d_src, work->bytes,
                                              cudaMemcpyDeviceToDevice),
                              "copy");
                    });
                    float ms = time_once(&device, [&] { row->run(&plan, &batch); });
                    if (r < 0)
                        continue;
                    copies.push_back(copy);
                    lines.back().ms.push_back(ms);
                }
                wrong += count != 0;
            }
        }
        print_work(work, &lines, &copies);
    }
    return wrong != 0;
}
