// SPDX-License-Identifier: MIT
// The formats of archives, by their first bytes and names. libarchive reads 7-Zip and unusual zip
// files, and writes compressed tars.
#include "io/archive/archive.h"

#include <string.h>
#include <strings.h>

#include "io/archive/libarchive_stream.h"
#include "io/archive/tar.h"
#include "io/archive/zip.h"

#define BEGINS(head, size, text)                                                                   \
    ((size) >= sizeof(text) - 1 && memcmp(head, text, sizeof(text) - 1) == 0)

static bool is_zip(const uint8_t *head, size_t size)
{
    return BEGINS(head, size, "PK\3\4") || BEGINS(head, size, "PK\5\6"); // the second is empty
}

static bool is_7z(const uint8_t *head, size_t size)
{
    return BEGINS(head, size, "7z\xBC\xAF\x27\x1C");
}

static bool is_gzip(const uint8_t *head, size_t size)
{
    return BEGINS(head, size, "\x1F\x8B\x08");
}

static bool is_zstd(const uint8_t *head, size_t size)
{
    return BEGINS(head, size, "\x28\xB5\x2F\xFD");
}

static bool is_xz(const uint8_t *head, size_t size)
{
    return BEGINS(head, size, "\xFD\x37zXZ");
}

static bool is_bzip2(const uint8_t *head, size_t size)
{
    return BEGINS(head, size, "BZh");
}

static const struct conv_archive_format zip = {
    .name = "zip",
    .seeks = true,
    .extensions = (const char *const[]){".zip", NULL},
    .recognise = is_zip,
    .read = conv_zip_read,
    .check = conv_zip_check,
    .write = conv_zip_write,
};

static const struct conv_archive_format tar_gz = {
    .name = "tar.gz",
    .extensions = (const char *const[]){".tar.gz", ".tgz", NULL},
    .recognise = is_gzip,
    .read = conv_tar_reader_open_packed,
    .check = conv_tar_check,
    .write = conv_libarchive_write_gzip,
};

static const struct conv_archive_format tar_zst = {
    .name = "tar.zst",
    .extensions = (const char *const[]){".tar.zst", ".tzst", NULL},
    .recognise = is_zstd,
    .read = conv_tar_reader_open_packed,
    .check = conv_tar_check,
    .write = conv_libarchive_write_zstd,
};

static const struct conv_archive_format tar_xz = {
    .name = "tar.xz",
    .extensions = (const char *const[]){".tar.xz", ".txz", NULL},
    .recognise = is_xz,
    .read = conv_tar_reader_open_packed,
};

static const struct conv_archive_format tar_bz2 = {
    .name = "tar.bz2",
    .extensions = (const char *const[]){".tar.bz2", ".tbz2", ".tbz", NULL},
    .recognise = is_bzip2,
    .read = conv_tar_reader_open_packed,
};

static const struct conv_archive_format seven_zip = {
    .name = "7z",
    .seeks = true,
    .extensions = (const char *const[]){".7z", NULL},
    .recognise = is_7z,
    .read = conv_libarchive_read,
};

const struct conv_archive_format *const conv_archive_libarchive[] = {
    &zip, &tar_gz, &tar_zst, &tar_xz, &tar_bz2, &seven_zip, NULL,
};

// --- the choice ----------------------------------------------------------------------------------

// The formats of archives, those of conv's own code first.

static const char *const tar_extensions[] = {".tar", NULL};

const struct conv_archive_format conv_archive_tar = {
    .name = "tar",
    .extensions = tar_extensions,
    .recognise = conv_tar_recognise,
    .read = conv_tar_reader_open,
    .check = conv_tar_check,
    .frame = conv_tar_frame,
    .trailer = conv_tar_trailer,
};

// Format number i; NULL after the last.
static const struct conv_archive_format *format_at(size_t i)
{
    return i == 0 ? &conv_archive_tar : conv_archive_libarchive[i - 1];
}

const struct conv_archive_format *conv_archive_of_bytes(const uint8_t *head, size_t size)
{
    const struct conv_archive_format *format;
    for (size_t i = 0; (format = format_at(i)); i++)
        if (format->recognise && format->recognise(head, size))
            return format;
    return NULL;
}

// The format with the longest matching extension: "a.tar.gz" is not a .gz file.
const struct conv_archive_format *conv_archive_of_path(const char *path)
{
    const struct conv_archive_format *format, *found = NULL;
    size_t length = strlen(path), longest = 0;
    for (size_t i = 0; (format = format_at(i)); i++)
        for (const char *const *next = format->extensions; *next; next++) {
            size_t size = strlen(*next);
            if (size < length && size > longest && strcasecmp(path + length - size, *next) == 0) {
                found = format;
                longest = size;
            }
        }
    return found;
}

const struct conv_archive_format *conv_archive_of_name(const char *name)
{
    const struct conv_archive_format *format;
    for (size_t i = 0; (format = format_at(i)); i++)
        if (strcmp(format->name, name) == 0)
            return format;
    return NULL;
}
