// SPDX-License-Identifier: MIT
// The formats of archives, by their first bytes and names. libarchive reads 7-Zip and unusual zip
// files; without the library that fails with CONV_ERR_UNSUPPORTED, but they are recognised for the
// message.
#include "io/archive/archive.h"

#include <string.h>
#include <strings.h>

#include "io/archive/tar.h"
#include "io/archive/zip.h"

#define LIST(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

const struct conv_archive_format conv_archive_tar = {
    .name = "tar",
    .extensions = LIST(".tar"),
    .read = conv_tar_reader_open,
    .check = conv_tar_check,
    .frame = conv_tar_frame,
    .trailer = conv_tar_trailer,
};

#define PACKED(NAME, MAGIC, ...)                                                                   \
    .name = NAME, .extensions = LIST(__VA_ARGS__), .magics = LIST(MAGIC),                          \
    .read = conv_tar_reader_open_packed

static const struct conv_archive_format others[] = {
    {
        .name = "zip",
        .seeks = true,
        .extensions = LIST(".zip", ".cbz"),
        .magics = LIST("PK\3\4", "PK\5\6"), // the second is empty
        .read = conv_zip_read,
        .check = conv_zip_check,
        .write = conv_zip_write,
    },
    {PACKED("tar.gz", "\x1F\x8B\x08", ".tar.gz", ".tgz"), .check = conv_tar_check,
     .write = conv_tar_write_gzip},
    {PACKED("tar.zst", "\x28\xB5\x2F\xFD", ".tar.zst", ".tzst"), .check = conv_tar_check,
     .write = conv_tar_write_zstd},
    {PACKED("tar.xz", "\xFD\x37zXZ", ".tar.xz", ".txz")},
    {PACKED("tar.bz2", "BZh", ".tar.bz2", ".tbz2", ".tbz")},
    {
        .name = "7z",
        .seeks = true,
        .extensions = LIST(".7z"),
        .magics = LIST("7z\xBC\xAF\x27\x1C"),
        .read = conv_libarchive_read,
    },
};

// Neither read nor written; other outputs do not have such names.
static const struct conv_archive_format foreign = {
    .extensions = LIST(".rar", ".gz", ".bz2", ".xz", ".zst", ".lzma", ".lz", ".z", ".cab", ".iso",
                       ".lzh", ".arj", ".cpio"),
};

// Format number i; NULL after the last.
static const struct conv_archive_format *format_at(size_t i)
{
    return i == 0                                  ? &conv_archive_tar
           : i <= sizeof others / sizeof others[0] ? &others[i - 1]
                                                   : NULL;
}

static bool is_of(const struct conv_archive_format *format, const uint8_t *head, size_t size)
{
    if (!format->magics)
        return conv_tar_recognise(head, size);
    for (const char *const *magic = format->magics; *magic; magic++)
        if (size >= strlen(*magic) && memcmp(head, *magic, strlen(*magic)) == 0)
            return true;
    return false;
}

const struct conv_archive_format *conv_archive_of_bytes(const uint8_t *head, size_t size)
{
    const struct conv_archive_format *format;
    for (size_t i = 0; (format = format_at(i)); i++)
        if (is_of(format, head, size))
            return format;
    return NULL;
}

// The format with the longest matching extension: "a.tar.gz" is not a .gz file.
const struct conv_archive_format *conv_archive_of_output(const char *path)
{
    const struct conv_archive_format *format, *found = NULL;
    size_t length = strlen(path), longest = 0;
    for (size_t i = 0; (format = i ? format_at(i - 1) : &foreign); i++)
        for (const char *const *next = format->extensions; *next; next++) {
            size_t size = strlen(*next);
            if (size < length && size > longest && strcasecmp(path + length - size, *next) == 0) {
                found = format;
                longest = size;
            }
        }
    return found;
}

const struct conv_archive_format *conv_archive_of_path(const char *path)
{
    const struct conv_archive_format *found = conv_archive_of_output(path);
    return found == &foreign ? NULL : found;
}

const struct conv_archive_format *conv_archive_of_name(const char *name)
{
    const struct conv_archive_format *format;
    for (size_t i = 0; (format = format_at(i)); i++)
        if (strcmp(format->name, name) == 0)
            return format;
    return NULL;
}
