// SPDX-License-Identifier: MIT
#include "io/gunzip.h"

#include <stdlib.h>
#include <zlib.h>

#include "io/expansion.h"

#define OUT_BYTES ((size_t)256 << 10)
#define IN_BYTES ((size_t)256 << 10) // at a time: a signal is noticed between two of them

struct conv_gunzip {
    struct conv_archive_input *input;
    z_stream stream;
    bool between;            // before a stream
    bool any;                // a stream has been read
    bool holds_back;         // zlib may have more output than it had room for
    struct conv_err failure; // reported once all that came before it has been handed out
    uint64_t in, out;
    uint8_t data[OUT_BYTES];
};

enum conv_status conv_gunzip_open(struct conv_gunzip **out, struct conv_archive_input *input,
                                  struct conv_err *err)
{
    struct conv_gunzip *gunzip = calloc(1, sizeof *gunzip);
    if (!gunzip || inflateInit2(&gunzip->stream, 15 + 16) != Z_OK) { // 16: gzip
        free(gunzip);
        *out = NULL;
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to decompress an archive");
    }
    gunzip->input = input;
    gunzip->between = true;
    *out = gunzip;
    return CONV_OK;
}

void conv_gunzip_close(struct conv_gunzip *gunzip)
{
    if (gunzip)
        (void)inflateEnd(&gunzip->stream);
    free(gunzip);
}

// Makes sure that there is input. 1, 0 at the end of the archive, or -1.
static int fill(struct conv_gunzip *gunzip, struct conv_err *err)
{
    if (gunzip->stream.avail_in > 0)
        return 1;
    const uint8_t *data;
    ssize_t got = conv_archive_input_take(gunzip->input, &data, IN_BYTES, err);
    if (got <= 0)
        return (int)got;
    gunzip->stream.next_in = (z_const Bytef *)(uintptr_t)data; // zlib only reads
    gunzip->stream.avail_in = (uInt)got;
    gunzip->in += (uint64_t)got;
    return 1;
}

// Skips padding. 1 before another stream, 0 at the end, or -1.
static int begin_stream(struct conv_gunzip *gunzip, struct conv_err *err)
{
    int more;
    bool padded = false;
    while ((more = fill(gunzip, err)) > 0) {
        z_stream *stream = &gunzip->stream;
        if (gunzip->any && *stream->next_in == 0) {
            padded = true;
            stream->next_in++;
            stream->avail_in--;
            continue;
        }
        if (padded || (gunzip->any && *stream->next_in != 0x1F)) {
            conv_err_set(err, CONV_ERR_FORMAT,
                         "the archive is damaged: data after its gzip stream");
            return -1;
        }
        gunzip->between = false;
        return 1;
    }
    return more;
}

static enum conv_status refuse(int result, struct conv_err *err)
{
    if (result == Z_MEM_ERROR)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to decompress an archive");
    return conv_err_set(err, CONV_ERR_FORMAT, "the archive is damaged: its gzip stream is invalid");
}

// Fills `data` until it is full, the stream has ended (*over), or more input would have to be
// waited for.
static enum conv_status decompress(struct conv_gunzip *gunzip, bool *over, struct conv_err *err)
{
    z_stream *stream = &gunzip->stream;
    while (stream->avail_out > 0) {
        if (stream->avail_in == 0 && stream->avail_out < OUT_BYTES && !gunzip->holds_back)
            return CONV_OK;
        int more = gunzip->holds_back ? 1
                   : gunzip->between  ? begin_stream(gunzip, err)
                                      : fill(gunzip, err);
        if (more < 0)
            return err->status;
        if (more == 0 && !gunzip->between)
            return conv_err_set(err, CONV_ERR_FORMAT, "the archive is truncated");
        *over = more == 0;
        if (*over)
            return CONV_OK;
        int result = inflate(stream, Z_NO_FLUSH);
        gunzip->holds_back = result == Z_OK && stream->avail_out == 0;
        if (result == Z_STREAM_END) {
            gunzip->between = gunzip->any = true;
            result = inflateReset(stream);
        }
        if (result != Z_OK && result != Z_BUF_ERROR)
            return refuse(result, err);
    }
    return CONV_OK;
}

ssize_t conv_gunzip_take(struct conv_gunzip *gunzip, const uint8_t **data, struct conv_err *err)
{
    z_stream *stream = &gunzip->stream;
    struct conv_err *failure = &gunzip->failure;
    bool over = false;
    stream->next_out = gunzip->data;
    stream->avail_out = OUT_BYTES;
    while (!failure->status && !over && stream->avail_out == OUT_BYTES)
        failure->status = decompress(gunzip, &over, failure);
    size_t size = OUT_BYTES - stream->avail_out;
    gunzip->out += size;
    if (!conv_expansion_allows(gunzip->in, gunzip->out))
        conv_err_set(failure, CONV_ERR_LIMIT, "%s", CONV_EXPANSION_TEXT);
    else if (size > 0 || !failure->status) {
        *data = gunzip->data;
        return (ssize_t)size; // what came before a failure is good
    }
    if (err)
        *err = *failure;
    return -1;
}
