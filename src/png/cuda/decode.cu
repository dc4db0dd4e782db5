// SPDX-License-Identifier: MIT
// The host's half of decoding: what fits, how much memory it takes, which kernels run.
#include "png/cuda/cuda_decode.h"

#include "png/cuda/launches.cuh"

#define SCRATCH_ALIGN 128

// Nothing interrupts the kernel that reverses the filters: at 1.9 GB/s for an image alone, this
// many bytes take 0.14 s. One core of a CPU is about as fast for one such image.
#define MOST_ROWS_BYTES ((uint64_t)256 << 20)
// A stream that is larger than stored blocks or the fixed code could make it holds blocks without
// bytes. The slack is for other chunks, because callers may know the size of the file only.
#define STREAM_SLACK ((uint64_t)64 << 10)
// Kernels count the bits of a stream in 32 bits. The count starts at the word that the first byte
// is in, and may pass the last bit by a match that begins there: 48 bits, with its extra bits.
static_assert(8 * (3 + MOST_ROWS_BYTES * 5 / 4 + STREAM_SLACK) + 48 <= UINT32_MAX,
              "the bits of every stream that is taken can be counted");
// One warp reverses the filters of 32 rows at a time, which takes it 25 us on an H200 even if they
// hold one pixel each: 0.8 ms for 1,000 rows. More rows than these are the CPU's, unless they are
// long enough to take longer to inflate.
#define MOST_SHORT_ROWS 8192
#define SHORT_ROW_BYTES 256

static uint64_t row_bytes(const struct conv_decode_image *image)
{
    return (uint64_t)image->width * (uint64_t)image->channels * (uint64_t)(image->depth / 8);
}

bool conv_cuda_decode_takes(const struct conv_decode_image *image)
{
    if (image->width < 1 || image->height < 1 || image->channels < 1 || image->channels > 4 ||
        (image->depth != 8 && image->depth != 16))
        return false;
    uint64_t row = row_bytes(image), height = (uint64_t)image->height;
    return row + 1 < MOST_ROWS_BYTES / height &&
           (height <= MOST_SHORT_ROWS || row >= SHORT_ROW_BYTES) &&
           image->stream_bytes <= (row + 1) * height * 5 / 4 + STREAM_SLACK;
}

size_t conv_cuda_decode_scratch(const struct conv_decode_image *image)
{
    uint64_t rows = (row_bytes(image) + 1) * (uint64_t)image->height;
    size_t end = conv_decode_result_at((uint32_t)rows) + sizeof(uint32_t);
    return (end + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

// Shell's sort of the turns, with the gaps of Knuth.
static void sort_turns(struct conv_decode_image *images, int count)
{
    int gap = 1;
    while (gap < count / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int i = gap; i < count; i++) {
            uint32_t turn = images[i].turn, bytes = images[turn].stream_bytes;
            int at = i;
            for (; at >= gap && images[images[at - gap].turn].stream_bytes < bytes; at -= gap)
                images[at].turn = images[at - gap].turn;
            images[at].turn = turn;
        }
}

void conv_cuda_decode_plan(struct conv_decode_image *images, int count, uint8_t *d_scratch)
{
    for (int i = 0; i < count; i++) {
        struct conv_decode_image *image = &images[i];
        image->row_bytes = (uint32_t)row_bytes(image);
        image->rows_bytes = (image->row_bytes + 1) * (uint32_t)image->height;
        image->d_rows = d_scratch;
        image->turn = (uint32_t)i;
        d_scratch += conv_cuda_decode_scratch(image);
    }
    sort_turns(images, count);
}

enum conv_status conv_cuda_decode(const struct conv_decode_batch *batch)
{
    typedef enum conv_status (*launch_fn)(const struct conv_decode_batch *, const char **);
    static const launch_fn launches[] = {conv_cuda_inflate, conv_cuda_unfilter};
    for (launch_fn launch : launches) {
        const char *name = "";
        enum conv_status status = launch(batch, &name);
        if (status)
            return status;
        if (batch->mark)
            batch->mark(batch->context, name);
    }
    return CONV_OK;
}
