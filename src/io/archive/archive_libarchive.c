// SPDX-License-Identifier: MIT
// The formats other than plain tar, by their first bytes and names. libarchive reads 7-Zip and
// unusual zip files, and writes compressed tars.
#include <string.h>

#include "io/archive/libarchive_formats.h"
#include "io/archive/tar_reader.h"
#include "io/archive/tar_writer.h"
#include "io/archive/zip_read.h"
#include "io/archive/zip_write.h"

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
