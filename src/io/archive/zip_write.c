// SPDX-License-Identifier: MIT
#include "io/archive/zip.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/archive/archive_output.h"

#define LEVEL 6
#define DEFLATE_MOST                                                                               \
    ((size_t)64 << 20) // larger contents are stored: compressing takes their memory

struct writer {
    struct conv_archive_writer base;
    struct conv_archive_output *output;
    uint64_t at; // bytes written
    struct conv_zip_directory directory;
    struct libdeflate_compressor *compressor; // made when it is first needed
    uint8_t *packed;
    size_t packed_capacity;

    struct conv_zip_entry entry; // of the member that is being written; its name is in `name`
    char name[CONV_ZIP_NAME_MOST];
};

static enum conv_status write_bytes(struct writer *writer, const void *data, size_t size,
                                    struct conv_err *err)
{
    writer->at += size;
    return size > 0 ? conv_archive_output_write(writer->output, data, size, err) : CONV_OK;
}

// --- members -------------------------------------------------------------------------------------

static enum conv_status type_of(const struct conv_archive_member *member, unsigned *type,
                                struct conv_err *err)
{
    switch (member->kind) {
    case CONV_ARCHIVE_FILE:
        *type = S_IFREG;
        return CONV_OK;
    case CONV_ARCHIVE_FOLDER:
        *type = S_IFDIR;
        return CONV_OK;
    case CONV_ARCHIVE_SYMLINK:
        *type = S_IFLNK;
        return CONV_OK;
    case CONV_ARCHIVE_HARDLINK:
    case CONV_ARCHIVE_DEVICE:
        break;
    }
    return conv_err_set(err, CONV_ERR_UNSUPPORTED, "a zip file cannot hold %s",
                        member->kind == CONV_ARCHIVE_DEVICE ? "a device" : "a hard link");
}

enum conv_status conv_zip_check(const struct conv_archive_member *member, struct conv_err *err)
{
    unsigned type;
    size_t length = strlen(member->name);
    enum conv_status status = type_of(member, &type, err);
    if (status)
        return status;
    if (length == 0)
        return conv_err_set(err, CONV_ERR_UNSUPPORTED, "a member of a zip file needs a name");
    if (length + (member->kind == CONV_ARCHIVE_FOLDER) > CONV_ZIP_NAME_MOST)
        return conv_err_set(err, CONV_ERR_LIMIT, "the name is too long for a zip file");
    return CONV_OK;
}

static enum conv_status begin_entry(struct writer *writer, const struct conv_archive_member *member,
                                    struct conv_err *err)
{
    struct conv_zip_entry *entry = &writer->entry;
    bool is_folder = member->kind == CONV_ARCHIVE_FOLDER;
    size_t length = strlen(member->name);
    unsigned type = 0;
    enum conv_status status = conv_zip_check(member, err);
    if (status)
        return status;
    (void)type_of(member, &type, err);
    memcpy(writer->name, member->name, length);
    if (is_folder && writer->name[length - 1] != '/')
        writer->name[length++] = '/';
    *entry = (struct conv_zip_entry){
        .name = writer->name,
        .name_size = length,
        .mode = type | (member->mode & 07777),
        .mtime = member->mtime.tv_sec,
        .offset = writer->at,
    };
    return CONV_OK;
}

static enum conv_status write_header(struct writer *writer, struct conv_err *err)
{
    uint8_t header[CONV_ZIP_HEADER_MOST];
    return write_bytes(writer, header, conv_zip_header(header, &writer->entry), err);
}

// --- contents ------------------------------------------------------------------------------------

// True if compressing is worth a try: texts, labels and raw arrays, not images.
static bool may_shrink(const struct conv_encoded *content)
{
    const uint8_t *data = content->part[0].data;
    size_t size = content->part[0].size;
    return size == content->size && size > 0 && size <= DEFLATE_MOST &&
           !conv_format_of_bytes(data, size);
}

// Compresses the content into writer->packed. False if that does not make it smaller.
static bool compress_content(struct writer *writer, const struct conv_encoded *content)
{
    size_t size = content->size;
    if (!writer->compressor)
        writer->compressor = libdeflate_alloc_compressor(LEVEL);
    if (size > writer->packed_capacity) {
        free(writer->packed);
        writer->packed = malloc(size);
        writer->packed_capacity = writer->packed ? size : 0;
    }
    if (!writer->compressor || !writer->packed)
        return false;
    writer->entry.packed = libdeflate_deflate_compress(writer->compressor, content->part[0].data,
                                                       size, writer->packed, size - 1);
    return writer->entry.packed > 0;
}

static enum conv_status append(struct conv_archive_writer *base,
                               const struct conv_archive_member *member,
                               const struct conv_encoded *content, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    struct conv_zip_entry *entry = &writer->entry;
    struct conv_encoded target = {0}; // of a symbolic link
    enum conv_status status = begin_entry(writer, member, err);
    if (status)
        return status;
    if (member->kind == CONV_ARCHIVE_SYMLINK) {
        target.size = target.part[0].size = strlen(member->link);
        target.part[0].data = (const uint8_t *)member->link;
    }
    if (!content || member->kind != CONV_ARCHIVE_FILE)
        content = &target;
    entry->size = entry->packed = content->size;
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        if (content->part[i].size > 0)
            entry->crc = libdeflate_crc32(entry->crc, content->part[i].data, content->part[i].size);
    bool deflated = may_shrink(content) && member->kind == CONV_ARCHIVE_FILE &&
                    compress_content(writer, content);
    entry->method = deflated ? CONV_ZIP_DEFLATED : CONV_ZIP_STORED;
    if (!deflated)
        entry->packed = entry->size;
    status = write_header(writer, err);
    if (!status && deflated)
        status = write_bytes(writer, writer->packed, (size_t)entry->packed, err);
    for (int i = 0; i < CONV_ENCODED_PARTS && !status && !deflated; i++)
        status = write_bytes(writer, content->part[i].data, content->part[i].size, err);
    return status ? status : conv_zip_directory_add(&writer->directory, entry, err);
}

// --- the archive ---------------------------------------------------------------------------------

static enum conv_status finish(struct conv_archive_writer *base, struct conv_err *err)
{
    struct writer *writer = (struct writer *)base;
    uint8_t last[CONV_ZIP_END_MOST];
    const uint8_t *records;
    uint64_t start = writer->at;
    ptrdiff_t got;
    while ((got = conv_zip_directory_take(&writer->directory, &records, err)) > 0) {
        enum conv_status status = write_bytes(writer, records, (size_t)got, err);
        if (status)
            return status;
    }
    if (got < 0)
        return CONV_ERR_IO;
    return write_bytes(writer, last, conv_zip_directory_end(last, &writer->directory, start), err);
}

static void close_writer(struct conv_archive_writer *base)
{
    struct writer *writer = (struct writer *)base;
    conv_zip_directory_free(&writer->directory);
    libdeflate_free_compressor(writer->compressor);
    free(writer->packed);
    free(writer);
}

enum conv_status conv_zip_write(struct conv_archive_writer **out,
                                struct conv_archive_output *output, struct conv_err *err)
{
    static const struct conv_archive_writer_ops ops = {
        .append = append,
        .finish = finish,
        .close = close_writer,
    };
    struct writer *writer = calloc(1, sizeof *writer);
    *out = NULL;
    if (!writer)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory to write a zip file");
    writer->base.ops = &ops;
    writer->output = output;
    *out = &writer->base;
    return CONV_OK;
}
