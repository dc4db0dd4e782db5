// SPDX-License-Identifier: MIT
// libtiff's file in memory, with handlers of its own: nothing is printed, and no thread sees the
// messages of another. What libtiff guesses or repairs is an error here.
#include "tiff/libtiff.h"

#include <stdio.h>
#include <string.h>

#include <tiffio.h>

__attribute__((format(printf, 2, 0))) static void
keep_message(struct conv_libtiff *tiff, const char *format, va_list arguments)
{
    if (tiff->failed)
        return;
    tiff->failed = true;
    vsnprintf(tiff->fault.text, sizeof tiff->fault.text, format, arguments);
    tiff->fault.truncated = strstr(format, "Can not read TIFF directory");
    tiff->fault.no_memory |= !strstr(format, "beyond") && // a limit of ours
                             (strstr(format, "ut of memory") || strstr(format, "No space"));
}

__attribute__((format(printf, 4, 0))) static int on_error(TIFF *, void *user, const char *,
                                                          const char *format, va_list arguments)
{
    keep_message(user, format, arguments);
    return 1;
}

// In a directory libtiff warns of unknown tags and others that it ignores; what it assumes instead
// of what is there, or missing, is damage. While it decodes, all but one warning are of damage.
__attribute__((format(printf, 4, 0))) static int on_warning(TIFF *, void *user, const char *,
                                                            const char *format, va_list arguments)
{
    static const char *const damage[] = {"Bogus", "Wrong", "missing", "ssum"};
    struct conv_libtiff *tiff = user;
    bool bad = tiff->decoding && !strstr(format, "Old-style LZW");
    for (size_t i = 0; i < sizeof damage / sizeof damage[0] && !tiff->decoding; i++)
        bad = bad || strstr(format, damage[i]);
    if (bad)
        keep_message(tiff, format, arguments);
    return 1;
}

static tmsize_t read_bytes(thandle_t handle, void *to, tmsize_t bytes)
{
    struct conv_libtiff *tiff = handle;
    size_t left = tiff->at < tiff->size ? tiff->size - tiff->at : 0;
    size_t take = (size_t)bytes < left ? (size_t)bytes : left;
    if (take > 0)
        memcpy(to, tiff->data + tiff->at, take);
    tiff->at += take;
    return (tmsize_t)take;
}

static tmsize_t write_bytes(thandle_t handle, void *from, tmsize_t bytes)
{
    struct conv_libtiff *tiff = handle;
    size_t size = (size_t)bytes, skipped = tiff->at < tiff->start ? tiff->start - tiff->at : 0;
    size_t at = tiff->at + skipped - tiff->start;
    tiff->at += size;
    if (tiff->closed || size <= skipped) // the header, for which there is another
        return bytes;
    size -= skipped;
    struct conv_buffer *file = tiff->file;
    if (at + size > file->capacity) {
        size_t grown = file->capacity + file->capacity / 2;
        size_t least = at + size + CONV_LIBTIFF_LEAST_ROOM;
        grown = grown > tiff->most ? tiff->most : grown;
        if (!conv_buffer_reserve(file, grown > least ? grown : least)) {
            tiff->failed = tiff->fault.no_memory = true;
            return -1;
        }
    }
    memcpy(file->data + at, (const uint8_t *)from + skipped, size);
    if (at + size > file->size)
        file->size = at + size;
    return bytes;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence)
{
    struct conv_libtiff *tiff = handle;
    size_t end = tiff->file ? tiff->start + tiff->file->size : tiff->size;
    tiff->at = (size_t)offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? tiff->at : end);
    return tiff->at;
}

static toff_t size_of(thandle_t handle)
{
    struct conv_libtiff *tiff = handle;
    return tiff->file ? tiff->start + tiff->file->size : tiff->size;
}

static int close_file(thandle_t)
{
    return 0;
}

static int map(thandle_t handle, void **base, toff_t *size)
{
    struct conv_libtiff *tiff = handle;
    if (tiff->file)
        return 0;
    *base = (void *)(uintptr_t)tiff->data; // only read
    *size = tiff->size;
    return 1;
}

static void unmap(thandle_t, void *, toff_t)
{
}

void conv_libtiff_open(struct conv_libtiff *tiff, const char *mode, size_t most)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (options) {
        TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)most);
        TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, tiff);
        TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, tiff);
        tiff->tif = TIFFClientOpenExt("", mode, tiff, read_bytes, write_bytes, seek, close_file,
                                      size_of, map, unmap, options);
        TIFFOpenOptionsFree(options);
    }
    if (tiff->tif || tiff->failed)
        return;
    tiff->failed = true;
    tiff->fault.no_memory = !options;
    snprintf(tiff->fault.text, sizeof tiff->fault.text, "bad header");
}

void conv_libtiff_close(struct conv_libtiff *tiff)
{
    tiff->closed = true;
    if (tiff->tif)
        TIFFClose(tiff->tif);
    tiff->tif = NULL;
}
