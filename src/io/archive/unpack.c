// SPDX-License-Identifier: MIT
#include "io/archive/unpack.h"

#include <stdlib.h>
#include <string.h>

#define OUT_BYTES ((size_t)1 << 20)  // at a time: the expansion is checked between two of them
#define IN_BYTES ((size_t)256 << 10) // at a time: a signal is noticed between two of them

struct conv_unpack {
    const struct conv_unpack_method *method;
    void *state;
    struct conv_archive_input *input;
    struct conv_unpack_bytes bytes;
    bool between;            // before a stream
    bool any;                // a stream has been read
    bool holds_back;         // output may be left for which there was no room
    struct conv_err failure; // reported once all that came before it has been handed out
    uint64_t out;
};

static enum conv_status refuse_memory(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_MEMORY, "no memory to decompress an archive");
}

enum conv_status conv_unpack_open(struct conv_unpack **out, const struct conv_unpack_method *method,
                                  struct conv_archive_input *input, struct conv_err *err)
{
    struct conv_unpack *unpack = calloc(1, sizeof *unpack);
    void *state = unpack ? method->open() : NULL;
    *out = NULL;
    if (!state) {
        free(unpack);
        return refuse_memory(err);
    }
    unpack->method = method;
    unpack->state = state;
    unpack->input = input;
    unpack->between = true;
    *out = unpack;
    return CONV_OK;
}

void conv_unpack_close(struct conv_unpack *unpack)
{
    if (unpack)
        unpack->method->close(unpack->state);
    free(unpack);
}

// Makes sure that there is input. 1, 0 at the end of the archive, or -1.
static int fill(struct conv_unpack *unpack, struct conv_err *err)
{
    if (unpack->bytes.in_size > 0)
        return 1;
    ssize_t got = conv_archive_input_take(unpack->input, &unpack->bytes.in, IN_BYTES, err);
    if (got <= 0)
        return (int)got;
    unpack->bytes.in_size = (size_t)got;
    return 1;
}

// Skips padding. 1 before another stream, 0 at the end, or -1.
static int begin_stream(struct conv_unpack *unpack, struct conv_err *err)
{
    int more;
    bool padded = false;
    const struct conv_unpack_method *method = unpack->method;
    while ((more = fill(unpack, err)) > 0) {
        struct conv_unpack_bytes *bytes = &unpack->bytes;
        if (unpack->any && *bytes->in == 0) {
            padded = true;
            bytes->in++;
            bytes->in_size--;
            continue;
        }
        if ((padded && !method->may_follow_padding) ||
            (unpack->any && !strchr(method->firsts, *bytes->in))) {
            conv_err_set(err, CONV_ERR_FORMAT, "the archive is damaged: data after its %s stream",
                         method->name);
            return -1;
        }
        if (unpack->any && !method->restart(unpack->state)) {
            refuse_memory(err);
            return -1;
        }
        unpack->between = false;
        return 1;
    }
    return more;
}

// Fills the room of `size` bytes until it is full, the stream has ended (*over), or more input
// would have to be waited for.
static enum conv_status decompress(struct conv_unpack *unpack, size_t size, bool *over,
                                   struct conv_err *err)
{
    struct conv_unpack_bytes *bytes = &unpack->bytes;
    while (bytes->out_size > 0) {
        if (bytes->in_size == 0 && bytes->out_size < size && !unpack->holds_back)
            return CONV_OK;
        int more = unpack->holds_back ? 1
                   : unpack->between  ? begin_stream(unpack, err)
                                      : fill(unpack, err);
        if (more < 0)
            return err->status;
        if (more == 0 && !unpack->between)
            return conv_err_set(err, CONV_ERR_FORMAT, "the archive is truncated");
        *over = more == 0;
        if (*over)
            return CONV_OK;
        size_t before = bytes->in_size + bytes->out_size;
        enum conv_unpack_result result = unpack->method->run(unpack->state, bytes);
        bool stands = bytes->in_size > 0 && bytes->in_size + bytes->out_size == before;
        if (result == CONV_UNPACK_MORE && stands)
            result = CONV_UNPACK_DAMAGED;
        if (result == CONV_UNPACK_NO_MEMORY)
            return refuse_memory(err);
        if (result == CONV_UNPACK_DAMAGED)
            return conv_err_set(err, CONV_ERR_FORMAT,
                                "the archive is damaged: its %s stream is invalid",
                                unpack->method->name);
        unpack->holds_back = result == CONV_UNPACK_MORE && bytes->out_size == 0;
        unpack->between = result == CONV_UNPACK_END;
        unpack->any |= unpack->between;
    }
    return CONV_OK;
}

ssize_t conv_unpack_read(struct conv_unpack *unpack, uint8_t *data, size_t size,
                         struct conv_err *err)
{
    struct conv_err *failure = &unpack->failure;
    bool over = false;
    size = size < OUT_BYTES ? size : OUT_BYTES;
    unpack->bytes.out = data;
    unpack->bytes.out_size = size;
    while (!failure->status && !over && unpack->bytes.out_size == size)
        failure->status = decompress(unpack, size, &over, failure);
    size_t made = size - unpack->bytes.out_size;
    unpack->out += made;
    if (!conv_expansion_allows(conv_unpack_stored(unpack), unpack->out))
        conv_err_set(failure, CONV_ERR_LIMIT, "%s", CONV_EXPANSION_TEXT);
    else if (made > 0 || !failure->status)
        return (ssize_t)made; // what came before a failure is good
    if (err)
        *err = *failure;
    return -1;
}

uint64_t conv_unpack_stored(const struct conv_unpack *unpack)
{
    return conv_archive_input_stored(unpack->input);
}
