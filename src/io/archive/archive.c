// SPDX-License-Identifier: MIT
// The formats of archives, those of conv's own code first.
#include "io/archive/archive.h"

#include <string.h>
#include <strings.h>

#include "io/archive/tar_reader.h"
#include "io/archive/tar_writer.h"

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
