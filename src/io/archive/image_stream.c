// SPDX-License-Identifier: MIT
// Images one after the other (`ffmpeg -f image2pipe`) as an archive whose members have no names and
// nothing between them.
#include "io/archive/archive.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/archive/archive_input.h"
#include "io/files/file_read.h"
#include "io/files/formats.h"

#define LEAST_IMAGE 8 // bytes: a PBM of one pixel
#define RECOGNISED 12 // bytes that show any format
#define FILE_MODE 0644
#define STEP ((size_t)1 << 16) // what is read ahead of an image whose size is known is copied twice

struct conv_image_stream {
    struct conv_archive_reader base;
    struct conv_archive_input *input;
    uint64_t number; // of the current image, from 1 on
    uint64_t size;   // of the current image
    uint64_t left;   // bytes of it that were not handed out; UINT64_MAX: all, `size` is unknown
    char name[48];
};

// --- where an image ends -------------------------------------------------------------------------

// Blanks, line ends and NUL bytes may stand between two images: lists of files, blocks of a tape.
static bool is_padding(uint8_t byte)
{
    return byte == 0 || isspace(byte);
}

// The bytes from `skipped` after the position on, at least `least` of them unless the input ends.
static ssize_t look(struct conv_archive_input *input, uint64_t skipped, uint64_t least,
                    const uint8_t **data, struct conv_err *err)
{
    ssize_t got = conv_archive_input_look(input, data, skipped + least, err);
    if (got < 0)
        return -1;
    *data += (uint64_t)got > skipped ? skipped : 0;
    return (uint64_t)got > skipped ? got - (ssize_t)skipped : 0;
}

// The format of the image there. CONV_ERR_FORMAT: it is none.
static enum conv_status recognise(struct conv_archive_input *input, uint64_t skipped,
                                  const struct conv_format **format, struct conv_err *err)
{
    const uint8_t *data;
    ssize_t got = look(input, skipped, LEAST_IMAGE, &data, err);
    if (got >= LEAST_IMAGE && data[0] == 'R') // RIFF
        got = look(input, skipped, RECOGNISED, &data, err);
    return got < 0 ? err->status : conv_formats_check(format, data, (size_t)got, true, err);
}

// Sets *size to the bytes of the image at the position; UINT64_MAX: all that follows belongs to it,
// or the end cannot be known. CONV_ERR_FORMAT: it is no image, or so damaged that nothing says
// where it ends; CONV_ERR_LIMIT, also of more pixels than `most` (0: any number).
static enum conv_status measure(struct conv_archive_input *input, const struct conv_format **format,
                                uint64_t most, uint64_t *size, struct conv_err *err)
{
    size_t at = 0;
    uint64_t least = LEAST_IMAGE;
    enum conv_status status = recognise(input, 0, format, err);
    while (!status) {
        const uint8_t *data;
        ssize_t got = look(input, 0, least, &data, err);
        if (got < 0)
            return err->status;
        if (most && conv_image_reader_check_head(data, (size_t)got, most, err))
            return CONV_ERR_LIMIT;
        *size = UINT64_MAX;
        if (!(*format)->extent || (*format)->extent(data, (size_t)got, &at, size))
            return CONV_OK;
        if ((size_t)got < least) { // truncated
            *size = (size_t)got;
            return CONV_OK;
        }
        if (*size <= (size_t)got)
            status = conv_err_format(err, "damaged at byte %zu: its end cannot be found", at);
        least = *size;
    }
    return status;
}

static bool has_too_many_pixels(const struct conv_err *err)
{
    return err->status == CONV_ERR_LIMIT && err->hint == CONV_HINT_MAX_PIXELS;
}

bool conv_archive_images_follow(struct conv_archive_input *input)
{
    const struct conv_format *format;
    const uint8_t *data;
    uint64_t size;
    ssize_t got;
    struct conv_err ignored; // reading reports it again
    if (measure(input, &format, input->max_pixels, &size, &ignored))
        return has_too_many_pixels(&ignored);
    if (size == UINT64_MAX)
        return false;
    while ((got = look(input, size, 1, &data, &ignored)) > 0 && is_padding(*data))
        size++;
    return got > 0 && !recognise(input, size, &format, &ignored);
}

// --- reading -------------------------------------------------------------------------------------

static enum conv_archive_step fail(const struct conv_image_stream *reader, struct conv_err *err)
{
    const struct conv_err cause = *err;
    conv_err_set(err, cause.status, "image %" PRIu64 ": %.4000s", reader->number, cause.text);
    return CONV_ARCHIVE_DAMAGED;
}

static enum conv_archive_step next(struct conv_archive_reader *base,
                                   struct conv_archive_member *member, struct conv_err *err)
{
    struct conv_image_stream *reader = (struct conv_image_stream *)base;
    struct conv_archive_input *input = reader->input;
    const struct conv_format *format;
    const uint8_t *data;
    ssize_t got = 1;
    if (reader->left == UINT64_MAX && measure(input, &format, 0, &reader->left, err))
        return fail(reader, err);
    if (conv_archive_input_skip(input, reader->left, err) < 0)
        return CONV_ARCHIVE_DAMAGED;
    while ((got = conv_archive_input_peek(input, &data, 1, err)) > 0 && is_padding(*data))
        (void)conv_archive_input_skip(input, 1, err);
    if (got <= 0)
        return got < 0 ? CONV_ARCHIVE_DAMAGED : CONV_ARCHIVE_END;
    reader->number++;
    enum conv_status status = measure(input, &format, input->max_pixels, &reader->size, err);
    bool refused = status && has_too_many_pixels(err);
    if (status && !refused)
        return fail(reader, err);
    if (!status && reader->size == UINT64_MAX) {
        conv_err_unsupported(err, "a %s whose end only the end of the input shows", format->name);
        return fail(reader, err);
    }
    reader->left = refused ? UINT64_MAX : reader->size;
    snprintf(reader->name, sizeof reader->name, "stdin-%06" PRIu64 "%s", reader->number,
             format->extension);
    *member = (struct conv_archive_member){
        .kind = CONV_ARCHIVE_FILE,
        .name = reader->name,
        .link = "",
        .size = reader->size,
        .mode = FILE_MODE,
        .mtime = input->info.st_mtim,
        .uname = "",
        .gname = "",
    };
    return refused ? CONV_ARCHIVE_BAD : CONV_ARCHIVE_MEMBER;
}

static ssize_t read_image(struct conv_archive_reader *base, void *data, size_t size,
                          struct conv_err *err)
{
    struct conv_image_stream *reader = (struct conv_image_stream *)base;
    size_t most = size < reader->left ? size : (size_t)reader->left;
    ssize_t got = conv_archive_input_read(reader->input, data, most, err);
    if (got >= 0 && (size_t)got < most) {
        conv_err_format(err, "truncated: ends after %" PRIu64 " of %" PRIu64 " bytes",
                        reader->size - reader->left + (uint64_t)got, reader->size);
        return -1;
    }
    reader->left -= got > 0 ? (uint64_t)got : 0;
    return got;
}

static void close_reader(struct conv_archive_reader *base)
{
    free(base);
}

static enum conv_status open_reader(struct conv_archive_reader **out,
                                    struct conv_archive_input *input, struct conv_err *err)
{
    static const struct conv_archive_reader_ops ops = {
        .next = next, .read = read_image, .close = close_reader};
    struct conv_image_stream *reader = calloc(1, sizeof *reader);
    if (!reader)
        return conv_err_memory(err, "no memory to read images");
    reader->base.ops = &ops;
    reader->input = input;
    input->step = STEP;
    *out = &reader->base;
    return CONV_OK;
}

// --- writing -------------------------------------------------------------------------------------

static enum conv_status check(const struct conv_archive_member *, struct conv_err *)
{
    return CONV_OK;
}

static enum conv_status frame(const struct conv_archive_member *, struct conv_archive_frame *frame,
                              struct conv_err *)
{
    frame->before = frame->after = 0;
    return CONV_OK;
}

const struct conv_archive_format conv_archive_images = {
    .name = "images",
    .extensions = (const char *const[]){NULL},
    .read = open_reader,
    .check = check,
    .frame = frame,
};
