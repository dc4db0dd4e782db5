// SPDX-License-Identifier: MIT
// gzip always; zstd, xz and bzip2 where the build has found their libraries.
#include "io/archive/unpack.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#if CONV_HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif
#if CONV_HAVE_LZMA
#include <lzma.h>
#endif
#if CONV_HAVE_BZIP2
#include <bzlib.h>
#endif

#include "io/archive/archive.h"

// One library's decompressor.
struct method {
    const char *name;        // "zstd"
    const char *magic;       // the first bytes of an archive, without a NUL
    const char *firsts;      // bytes that a further stream may begin with
    bool may_follow_padding; // a further stream may come after zeros

    size_t state_bytes;
    // Before a stream, `again`: not the first one; before the first one the state is zeros. False
    // without memory.
    bool (*begin)(void *state, bool again);
    // Everything before damage comes out before CONV_UNPACK_DAMAGED, or with it.
    enum conv_unpack_result (*run)(void *state, struct conv_unpack_bytes *bytes);
    void (*close)(void *state); // also after `begin` has failed
};

// Libraries count in ints.
#define MOST_BYTES ((size_t)1 << 30)

static size_t at_most(size_t size)
{
    return size < MOST_BYTES ? size : MOST_BYTES;
}

static void advance(struct conv_unpack_bytes *bytes, size_t in_left, size_t out_left)
{
    bytes->in += bytes->in_size - in_left;
    bytes->in_size = in_left;
    bytes->out += bytes->out_size - out_left;
    bytes->out_size = out_left;
}

// --- gzip ----------------------------------------------------------------------------------------

#define GZIP (15 + 16) // largest window, and the header of gzip

static bool begin_gzip(void *state, bool again)
{
    return (again ? inflateReset(state) : inflateInit2(state, GZIP)) == Z_OK;
}

static enum conv_unpack_result run_zlib(z_stream *stream, struct conv_unpack_bytes *bytes,
                                        int (*run)(z_stream *stream, int flush), int flush)
{
    size_t in = at_most(bytes->in_size), out = at_most(bytes->out_size);
    stream->next_in = (z_const Bytef *)(uintptr_t)bytes->in; // zlib only reads
    stream->avail_in = (uInt)in;
    stream->next_out = bytes->out;
    stream->avail_out = (uInt)out;
    int result = run(stream, flush);
    advance(bytes, bytes->in_size - in + stream->avail_in,
            bytes->out_size - out + stream->avail_out);
    return result == Z_STREAM_END                    ? CONV_UNPACK_END
           : result == Z_OK || result == Z_BUF_ERROR ? CONV_UNPACK_MORE
           : result == Z_MEM_ERROR                   ? CONV_UNPACK_NO_MEMORY
                                                     : CONV_UNPACK_DAMAGED;
}

static enum conv_unpack_result run_gzip(void *state, struct conv_unpack_bytes *bytes)
{
    return run_zlib(state, bytes, inflate, Z_NO_FLUSH);
}

static void close_gzip(void *state)
{
    (void)inflateEnd(state);
}

static bool begin_deflate(void *state)
{
    return deflateInit2((z_stream *)state, 1, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) == Z_OK;
}

static enum conv_unpack_result run_deflate(void *state, struct conv_unpack_bytes *bytes, bool last)
{
    return run_zlib(state, bytes, deflate,
                    last && bytes->in_size <= MOST_BYTES ? Z_FINISH : Z_NO_FLUSH);
}

static void close_deflate(void *state)
{
    (void)deflateEnd(state);
}

static const struct conv_pack_method gzip = {sizeof(z_stream), begin_deflate, run_deflate,
                                             close_deflate};
const struct conv_pack_method *const conv_pack_gzip = &gzip;

// --- zstd ----------------------------------------------------------------------------------------

#if CONV_HAVE_ZSTD
// Frames to be skipped, as pzstd writes them, begin with 0x50 to 0x5F.
#define ZSTD_FIRSTS "\x28PQRSTUVWXYZ[\\]^_"

struct zstd {
    ZSTD_DStream *stream;
    size_t hint; // bytes of input up to the end of the next block and the header after it
};

static bool begin_zstd(void *state, bool again)
{
    struct zstd *zstd = state;
    if (!again)
        zstd->stream = ZSTD_createDStream();
    if (zstd->stream)
        zstd->hint = ZSTD_initDStream(zstd->stream);
    return zstd->stream && !ZSTD_isError(zstd->hint);
}

// One block at a time: a call that meets a damaged block does not say how much it has decompressed
// before.
static enum conv_unpack_result run_zstd(void *state, struct conv_unpack_bytes *bytes)
{
    struct zstd *zstd = state;
    size_t size = zstd->hint < bytes->in_size ? zstd->hint : bytes->in_size;
    ZSTD_inBuffer in = {bytes->in, size, 0};
    ZSTD_outBuffer out = {bytes->out, bytes->out_size, 0};
    size_t hint = ZSTD_decompressStream(zstd->stream, &out, &in);
    if (ZSTD_isError(hint))
        return ZSTD_getErrorCode(hint) == ZSTD_error_memory_allocation ? CONV_UNPACK_NO_MEMORY
                                                                       : CONV_UNPACK_DAMAGED;
    advance(bytes, bytes->in_size - in.pos, out.size - out.pos);
    zstd->hint = hint;
    return hint == 0 ? CONV_UNPACK_END : CONV_UNPACK_MORE;
}

static void close_zstd(void *state)
{
    ZSTD_freeDStream(((struct zstd *)state)->stream);
}

static bool begin_zstd_writer(void *state)
{
    ZSTD_CStream **stream = state;
    *stream = ZSTD_createCStream();
    return *stream && !ZSTD_isError(ZSTD_initCStream(*stream, 1));
}

static enum conv_unpack_result run_zstd_writer(void *state, struct conv_unpack_bytes *bytes,
                                               bool last)
{
    ZSTD_CStream **stream = state;
    ZSTD_inBuffer in = {bytes->in, bytes->in_size, 0};
    ZSTD_outBuffer out = {bytes->out, bytes->out_size, 0};
    size_t left = ZSTD_compressStream2(*stream, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
    advance(bytes, in.size - in.pos, out.size - out.pos);
    return ZSTD_isError(left)  ? CONV_UNPACK_NO_MEMORY
           : last && left == 0 ? CONV_UNPACK_END
                               : CONV_UNPACK_MORE;
}

static void close_zstd_writer(void *state)
{
    ZSTD_freeCStream(*(ZSTD_CStream **)state);
}

static const struct conv_pack_method zstd = {sizeof(ZSTD_CStream *), begin_zstd_writer,
                                             run_zstd_writer, close_zstd_writer};
const struct conv_pack_method *const conv_pack_zstd = &zstd;
#else
const struct conv_pack_method *const conv_pack_zstd = NULL;
#endif

// --- xz ------------------------------------------------------------------------------------------

#if CONV_HAVE_LZMA
#define LZMA_MEMORY ((uint64_t)1 << 30) // as libarchive's limit; `xz -9` takes 65 MiB

static bool begin_lzma(void *state, bool again)
{
    static const lzma_stream initial = LZMA_STREAM_INIT;
    lzma_stream *stream = state;
    if (!again)
        *stream = initial;
    return lzma_stream_decoder(stream, LZMA_MEMORY, LZMA_TELL_UNSUPPORTED_CHECK) == LZMA_OK;
}

static enum conv_unpack_result run_lzma(void *state, struct conv_unpack_bytes *bytes)
{
    lzma_stream *stream = state;
    stream->next_in = bytes->in;
    stream->avail_in = bytes->in_size;
    stream->next_out = bytes->out;
    stream->avail_out = bytes->out_size;
    lzma_ret result = lzma_code(stream, LZMA_RUN);
    advance(bytes, stream->avail_in, stream->avail_out);
    return result == LZMA_STREAM_END                                   ? CONV_UNPACK_END
           : result == LZMA_OK || result == LZMA_BUF_ERROR             ? CONV_UNPACK_MORE
           : result == LZMA_MEM_ERROR || result == LZMA_MEMLIMIT_ERROR ? CONV_UNPACK_NO_MEMORY
                                                                       : CONV_UNPACK_DAMAGED;
}

static void close_lzma(void *state)
{
    lzma_end(state);
}
#endif

// --- bzip2 ---------------------------------------------------------------------------------------

#if CONV_HAVE_BZIP2
static bool begin_bzip2(void *state, bool again)
{
    if (again)
        (void)BZ2_bzDecompressEnd(state);
    memset(state, 0, sizeof(bz_stream));
    return BZ2_bzDecompressInit(state, 0, 0) == BZ_OK;
}

static enum conv_unpack_result run_bzip2(void *state, struct conv_unpack_bytes *bytes)
{
    bz_stream *stream = state;
    size_t in = at_most(bytes->in_size), out = at_most(bytes->out_size);
    stream->next_in = (char *)(uintptr_t)bytes->in; // libbz2 only reads
    stream->avail_in = (unsigned)in;
    stream->next_out = (char *)bytes->out;
    stream->avail_out = (unsigned)out;
    int result = BZ2_bzDecompress(stream);
    advance(bytes, bytes->in_size - in + stream->avail_in,
            bytes->out_size - out + stream->avail_out);
    return result == BZ_STREAM_END  ? CONV_UNPACK_END
           : result == BZ_OK        ? CONV_UNPACK_MORE
           : result == BZ_MEM_ERROR ? CONV_UNPACK_NO_MEMORY
                                    : CONV_UNPACK_DAMAGED;
}

static void close_bzip2(void *state)
{
    (void)BZ2_bzDecompressEnd(state);
}
#endif

// --- the table -----------------------------------------------------------------------------------

static const struct method methods[] = {
    {"gzip", "\x1F\x8B", "\x1F", false, sizeof(z_stream), begin_gzip, run_gzip, close_gzip},
#if CONV_HAVE_ZSTD
    {"zstd", "\x28\xB5\x2F\xFD", ZSTD_FIRSTS, false, sizeof(struct zstd), begin_zstd, run_zstd,
     close_zstd},
#endif
#if CONV_HAVE_LZMA
    {"xz", "\xFD\x37zXZ", "\xFD", true, sizeof(lzma_stream), begin_lzma, run_lzma, close_lzma},
#endif
#if CONV_HAVE_BZIP2
    {"bzip2", "BZh", "B", false, sizeof(bz_stream), begin_bzip2, run_bzip2, close_bzip2},
#endif
};

// NULL if there is none, or none in this build.
static const struct method *find_method(const uint8_t *head, size_t size)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        size_t length = strlen(methods[i].magic);
        if (size >= length && memcmp(head, methods[i].magic, length) == 0)
            return &methods[i];
    }
    return NULL;
}

// --- streams -------------------------------------------------------------------------------------

#define OUT_BYTES ((size_t)1 << 20)  // at a time: the expansion is checked between two of them
#define IN_BYTES ((size_t)256 << 10) // at a time: a signal is noticed between two of them

struct conv_unpack {
    const struct method *method;
    struct conv_archive_input *input;
    struct conv_unpack_bytes bytes;
    bool between;            // before a stream
    bool any;                // a stream has been read
    bool holds_back;         // output may be left for which there was no room
    struct conv_err failure; // reported once all that came before it has been handed out
    uint64_t out;
    max_align_t state[]; // the method's
};

static enum conv_status refuse_memory(struct conv_err *err)
{
    return conv_err_memory(err, "no memory to decompress an archive");
}

enum conv_status conv_unpack_open(struct conv_unpack **out, struct conv_archive_input *input,
                                  struct conv_err *err)
{
    const uint8_t *head;
    ssize_t size = conv_archive_input_peek(input, &head, CONV_ARCHIVE_HEAD, err);
    if (size < 0)
        return err->status;
    const struct method *method = find_method(head, (size_t)size);
    if (!method && conv_archive_of_bytes(head, (size_t)size))
        return conv_err_unsupported(err,
                                    "this conv was built without the library that decompresses it");
    if (!method)
        return conv_err_format(err, "not a compressed archive");
    struct conv_unpack *unpack = calloc(1, sizeof *unpack + method->state_bytes);
    if (!unpack)
        return refuse_memory(err);
    unpack->method = method;
    unpack->input = input;
    unpack->between = true;
    *out = unpack;
    if (method->begin(unpack->state, false))
        return CONV_OK;
    conv_unpack_close(unpack);
    *out = NULL;
    return refuse_memory(err);
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
    const struct method *method = unpack->method;
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
            conv_err_format(err, "the archive is damaged: data after its %s stream", method->name);
            return -1;
        }
        if (unpack->any && !method->begin(unpack->state, true)) {
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
            return conv_err_format(err, "the archive is truncated");
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
            return conv_err_format(err, "the archive is damaged: its %s stream is invalid",
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
        conv_err_limit(failure, "%s", CONV_EXPANSION_TEXT);
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
