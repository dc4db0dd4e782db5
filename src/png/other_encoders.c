// SPDX-License-Identifier: MIT
// The encoders of other libraries that a program offers by name, and stb_image_write: a whole
// encoder in one small file, 8 bits per sample only. The only file that includes it; its functions
// are static here.
#include <limits.h>

#include "base/buffer.h"
#include "base/err.h"
#include "base/lock.h"
#include "image/interleave.h"
#include "png/png.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
// stb checks its allocations by assertion only; without assertions it would write
// beyond the old buffer.
#define STBIW_ASSERT(x) ((x) ? (void)0 : __builtin_trap())
// Without a matching pop: the compiler reports unused functions at the end of the file.
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image_write.h>

static struct conv_lock level_lock = CONV_LOCK_INITIALIZER;

// The search effort (hash chain length; below 5 is as 5) of every later call, for the whole
// process, since stb keeps it in a global variable. Any thread may set the same level again at any
// time, another one only while no thread encodes: it is not written if it is the same, since
// encoders on other threads read it without the lock.
static void set_level(int level)
{
    conv_lock_acquire(&level_lock);
    if (stbi_write_png_compression_level != level)
        stbi_write_png_compression_level = level;
    conv_lock_release(&level_lock);
}

// stb counts in int. It sums up to 128 per byte of a row; its output is at most 9 bits per byte of
// input and grows by doubling, to 9/4 of the input. The bound of 4/10 leaves a tenth for the rest.
static bool fits_int(size_t row_size, size_t height)
{
    return row_size <= INT_MAX / 128 && (row_size + 1) * height <= INT_MAX / 10 * 4;
}

// Samples, filtered rows, and a file that doubles.
static size_t encode_bytes(const struct conv_image *shape)
{
    size_t bytes;
    if (__builtin_mul_overflow(conv_interleave_bytes(shape) + 1, 4 * (size_t)shape->height, &bytes))
        return SIZE_MAX;
    return bytes;
}

static enum conv_status encode(struct conv_buffer *pixels, struct conv_buffer *file,
                               const struct conv_image *src, int level, const atomic_int *,
                               struct conv_err *err)
{
    (void)level; // set_level's
    size_t row_size = conv_interleave_bytes(src);
    if (src->depth != 8)
        return conv_err_advise(err, CONV_ERR_UNSUPPORTED, CONV_HINT_OTHER_ENCODER,
                               "the stb encoder writes 8 bits per sample only");
    if (!fits_int(row_size, (size_t)src->height))
        return conv_err_advise(err, CONV_ERR_UNSUPPORTED, CONV_HINT_OTHER_ENCODER,
                               "%d x %d pixels are too many for the stb encoder", src->width,
                               src->height);
    if (!conv_buffer_reserve(pixels, row_size * (size_t)src->height))
        return conv_err_memory(err, "out of memory");
    for (int y = 0; y < src->height; y++)
        conv_interleave_join(pixels->data + (size_t)y * row_size, src, y);
    int size = 0;
    uint8_t *data = stbi_write_png_to_mem(pixels->data, (int)row_size, src->width, src->height,
                                          src->channels, &size);
    if (!data)
        return conv_err_memory(err, "out of memory");
    conv_buffer_free(file);
    *file = (struct conv_buffer){data, (size_t)size, (size_t)size};
    return CONV_OK;
}

const struct conv_png_encoder conv_png_stb = {
    .name = "stb",
    .standard_level = 8,
    .most_level = 9,
    .prepare = set_level,
    .bytes = encode_bytes,
    .encode = encode,
};

// --- names --------------------------------------------------------------------------------------

static const struct {
    const char *name;
    const struct conv_png_encoder *encoder;
} encoders[] = {{"fast", NULL}, {"libpng", &conv_png_libpng}, {"stb", &conv_png_stb}};

enum conv_status conv_png_parse_encoder(const struct conv_png_encoder **encoder, const char *name,
                                        struct conv_err *err)
{
    int index = conv_suggest_choice("encoder", name, &encoders[0].name, sizeof encoders[0],
                                    sizeof encoders / sizeof encoders[0], err);
    *encoder = index < 0 ? NULL : encoders[index].encoder;
    return index < 0 ? CONV_ERR_USAGE : CONV_OK;
}
