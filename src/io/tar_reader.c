// SPDX-License-Identifier: MIT
// Contents are handed out by pointer from a mapped archive and read once from a stream. A block of
// zeros ends an archive; another archive may follow, as after `cat a.tar b.tar`.
#include "io/tar_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/archive_input.h"
#include "io/expansion.h"
#include "io/tar_member.h"
#include "io/tar_pax.h"

struct tar_reader {
    struct conv_archive_reader reader;
    struct conv_archive_input *input;
    uint64_t left;       // bytes of the content that were not read
    size_t padding;      // after them
    uint64_t content;    // offset of the content
    bool is_file;        // the current member has a content for the user
    bool is_sparse;      // its content has holes: own.sparse
    struct conv_err map; // why the map of a sparse file cannot be read
    uint64_t expanded;   // bytes of all sparse files
    struct conv_tar_pax global, own;
    struct conv_tar_header header;
    struct conv_tar_names names;
};

bool conv_tar_recognise(const uint8_t *head, size_t size)
{
    const struct conv_tar_header *header = (const struct conv_tar_header *)head;
    // Before 1988 there was no magic; the checksum alone would do, but not for a block of zeros.
    return size >= CONV_TAR_BLOCK && header->name[0] && conv_tar_is_header(head);
}

// --- blocks --------------------------------------------------------------------------------------

static enum conv_status refuse_end(const struct tar_reader *tar, const char *where,
                                   struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_FORMAT, "truncated archive: it ends %s, at byte %" PRIu64,
                        where, tar->input->at);
}

static bool is_zero(const uint8_t *block, size_t size)
{
    static const uint8_t zeros[CONV_TAR_BLOCK];
    return memcmp(block, zeros, size) == 0;
}

// Skips the rest of the member. CONV_ERR_FORMAT if the archive ends in it.
static enum conv_status skip_rest(struct tar_reader *tar, struct conv_err *err)
{
    uint64_t rest = tar->left + tar->padding;
    int64_t done = conv_archive_input_skip(tar->input, rest, err);
    if (done < 0)
        return err->status;
    // The padding of the last member may be missing: nothing is lost.
    if ((uint64_t)done < tar->left)
        return refuse_end(tar, "inside a member", err);
    tar->left = tar->padding = 0;
    return CONV_OK;
}

// The next header in tar->header. *end: the archive is over.
static enum conv_status next_header(struct tar_reader *tar, bool *end, struct conv_err *err)
{
    bool marked = false; // as ended
    *end = false;
    for (;;) {
        const uint8_t *block;
        uint64_t at = tar->input->at;
        ssize_t got = conv_archive_input_peek(tar->input, &block, CONV_TAR_BLOCK, err);
        if (got < 0)
            return err->status;
        if (got == 0 && marked) {
            *end = true;
            return CONV_OK;
        }
        if (got == 0)
            return refuse_end(tar, "without the mark of its end", err);
        if (got < CONV_TAR_BLOCK && !marked)
            return refuse_end(tar, "inside a header", err);
        bool zero = is_zero(block, (size_t)got);
        if (!zero && (got < CONV_TAR_BLOCK || !conv_tar_is_header(block)))
            return conv_err_set(err, CONV_ERR_FORMAT,
                                marked ? "byte %" PRIu64
                                         ": the data after the end of the archive is not an archive"
                                       : "damaged archive: no header at byte %" PRIu64,
                                at);
        if (!zero)
            memcpy(&tar->header, block, CONV_TAR_BLOCK);
        if (conv_archive_input_skip(tar->input, CONV_TAR_BLOCK, err) < 0)
            return err->status;
        if (!zero)
            return CONV_OK;
        marked = true;
    }
}

static enum conv_status parse_size(struct tar_reader *tar, uint64_t *size, struct conv_err *err)
{
    int64_t number;
    if (!conv_tar_parse_number(&number, tar->header.size, sizeof tar->header.size) || number < 0)
        return conv_err_set(err, CONV_ERR_FORMAT,
                            "damaged archive: the size of a member is not a number, before byte "
                            "%" PRIu64,
                            tar->input->at);
    *size = (uint64_t)number;
    return CONV_OK;
}

// --- headers about the next member ---------------------------------------------------------------

// The content of such a header, with a NUL after it; malloc'ed.
static enum conv_status read_extension(struct tar_reader *tar, char **data, size_t *size,
                                       struct conv_err *err)
{
    uint64_t length = 0;
    *data = NULL;
    enum conv_status status = parse_size(tar, &length, err);
    if (status)
        return status;
    if (length > CONV_TAR_MOST_PAX)
        return conv_err_set(err, CONV_ERR_LIMIT,
                            "a header about a member has %" PRIu64 " bytes; at most %zu are read",
                            length, CONV_TAR_MOST_PAX);
    char *text = malloc((size_t)length + 1);
    if (!text)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a header of the archive");
    ssize_t got = conv_archive_input_read(tar->input, text, (size_t)length, err);
    if (got < 0)
        status = err->status;
    else if ((uint64_t)got < length)
        status = refuse_end(tar, "inside a header", err);
    tar->padding = conv_tar_padding(length);
    if (!status)
        status = skip_rest(tar, err);
    if (status) {
        free(text);
        return status;
    }
    text[length] = '\0';
    *data = text;
    *size = (size_t)length;
    return CONV_OK;
}

// Reads a header of type 'x', 'g', 'L' or 'K', which describes the next member.
static enum conv_status read_about(struct tar_reader *tar, char type, struct conv_err *err)
{
    char *data;
    size_t size = 0;
    enum conv_status status = read_extension(tar, &data, &size, err);
    if (status)
        return status;
    if (type == 'L' || type == 'K')
        status = conv_tar_pax_set(type == 'L' ? &tar->own.name : &tar->own.link, data, strlen(data),
                                  err);
    else
        status = conv_tar_pax_parse(type == 'g' ? &tar->global : &tar->own, data, size, err);
    free(data);
    return status;
}

// --- members -------------------------------------------------------------------------------------

static enum conv_status set_member(struct tar_reader *tar, struct conv_archive_member *member,
                                   struct conv_err *err)
{
    conv_tar_member_fill(member, &tar->names, &tar->header);
    enum conv_status status = parse_size(tar, &member->size, err);
    if (!status) {
        conv_tar_pax_apply(&tar->global, member);
        conv_tar_pax_apply(&tar->own, member);
    }
    return status;
}

static enum conv_archive_step refuse_member(struct tar_reader *tar, enum conv_status status,
                                            const char *what, struct conv_err *err)
{
    tar->is_file = false;
    conv_err_set(err, status, "%s", what);
    return CONV_ARCHIVE_BAD;
}

// Prepares for reading a sparse file; `sparse` has the part of its map that is known so far. Its
// content is skipped if it cannot be read.
static enum conv_archive_step begin_sparse(struct tar_reader *tar,
                                           struct conv_archive_member *member, struct conv_err *err)
{
    struct conv_tar_sparse *sparse = &tar->own.sparse;
    enum conv_status status = tar->map.status;
    if (status)
        return refuse_member(tar, status, tar->map.text, err);
    if (sparse->is_at_content)
        status = conv_tar_sparse_begin(sparse, tar->input, &tar->left, err);
    if (!status && !conv_tar_sparse_fits(sparse, tar->left))
        status = conv_err_set(err, CONV_ERR_FORMAT, "the map of a sparse file is malformed");
    const struct conv_archive_input *input = tar->input;
    tar->expanded += status ? 0 : sparse->size; // both have 63 bits, and a sum is checked at once
    if (!status && !conv_expansion_allows(input->map ? input->size : input->at, tar->expanded)) {
        tar->expanded -= sparse->size;
        status = conv_err_set(err, CONV_ERR_LIMIT, "%s", CONV_EXPANSION_TEXT);
    }
    if (status) {
        tar->is_file = false;
        return CONV_ARCHIVE_BAD;
    }
    member->size = sparse->size;
    tar->is_file = tar->is_sparse = true;
    return CONV_ARCHIVE_MEMBER;
}

// Sets the kind. A member without a content for the user may still have bytes, which are skipped.
static enum conv_archive_step set_kind(struct tar_reader *tar, struct conv_archive_member *member,
                                       struct conv_err *err)
{
    size_t length = strlen(member->name);
    char type = tar->header.type;
    uint64_t size = member->size;
    bool slash = length > 0 && member->name[length - 1] == '/';
    member->size = 0;
    tar->left = 0;
    if (type == '1' || type == '2') { // whatever their size: those that tar writes have no content
        member->kind = type == '1' ? CONV_ARCHIVE_HARDLINK : CONV_ARCHIVE_SYMLINK;
        return CONV_ARCHIVE_MEMBER;
    }
    if (type == '3' || type == '4' || type == '6') {
        member->kind = CONV_ARCHIVE_DEVICE;
        return CONV_ARCHIVE_MEMBER;
    }
    if (type == '5' || ((type == '0' || type == '\0') && slash && size == 0)) {
        member->kind = CONV_ARCHIVE_FOLDER;
        return CONV_ARCHIVE_MEMBER;
    }
    tar->left = size;
    tar->padding = conv_tar_padding(size);
    tar->content = tar->input->at;
    if (tar->left > UINT64_MAX - CONV_TAR_BLOCK) // cannot be: sizes have 63 bits
        return refuse_member(tar, CONV_ERR_LIMIT, "its size is out of range", err);
    member->kind = type == 'D' ? CONV_ARCHIVE_FOLDER : CONV_ARCHIVE_FILE;
    if (type == 'D') // with a list of names
        return CONV_ARCHIVE_MEMBER;
    if (tar->global.is_sparse)
        return refuse_member(tar, CONV_ERR_UNSUPPORTED, "one map for all sparse files is not read",
                             err);
    if (type == 'S' || tar->own.is_sparse)
        return begin_sparse(tar, member, err);
    if (type == 'M')
        return refuse_member(tar, CONV_ERR_UNSUPPORTED,
                             "is the rest of a file that began in another archive", err);
    if (type != '0' && type != '\0' && type != '7') {
        conv_err_set(err, CONV_ERR_UNSUPPORTED, "is a member of unknown type (0x%02X)",
                     (unsigned char)type);
        return CONV_ARCHIVE_BAD;
    }
    member->size = size;
    tar->is_file = true;
    return CONV_ARCHIVE_MEMBER;
}

// With a mapped archive it is known at once whether the content is complete.
static bool is_cut_off(const struct tar_reader *tar)
{
    return tar->input->map && tar->left > tar->input->size - tar->input->at;
}

static void drop_slash(struct tar_reader *tar, struct conv_archive_member *member)
{
    size_t length = strlen(member->name);
    char *own = member->name == tar->names.name ? tar->names.name : tar->own.name;
    if (member->kind != CONV_ARCHIVE_FOLDER || member->name == tar->global.name)
        return;
    while (length > 1 && own[length - 1] == '/')
        own[--length] = '\0';
}

static enum conv_archive_step damaged(struct tar_reader *tar)
{
    tar->is_file = false;
    tar->left = tar->padding = 0;
    return CONV_ARCHIVE_DAMAGED;
}

static enum conv_archive_step next(struct conv_archive_reader *reader,
                                   struct conv_archive_member *member, struct conv_err *err)
{
    struct tar_reader *tar = (struct tar_reader *)reader;
    bool end;
    tar->is_file = tar->is_sparse = false;
    conv_tar_pax_clear(&tar->own);
    *member = (struct conv_archive_member){.name = "", .link = "", .uname = "", .gname = ""};
    for (;;) {
        if (skip_rest(tar, err) || next_header(tar, &end, err))
            return damaged(tar);
        if (end)
            return CONV_ARCHIVE_END;
        char type = tar->header.type;
        bool about = type == 'L' || type == 'K' || type == 'x' || type == 'g' || type == 'X';
        if (about) {
            if (read_about(tar, type, err))
                return damaged(tar);
            continue;
        }
        bool is_over = false;
        if (set_member(tar, member, err))
            return damaged(tar);
        tar->map = (struct conv_err){0};
        if (type == 'S' &&
            conv_tar_sparse_old(&tar->own.sparse, &tar->header, tar->input, &is_over, &tar->map) &&
            is_over) {
            *err = tar->map;
            return damaged(tar);
        }
        enum conv_archive_step step = set_kind(tar, member, err);
        if (type == 'V' || type == 'N') // a label; old names, which nothing has written since 1990
            continue;
        if (is_cut_off(tar)) {
            refuse_end(tar, "inside a member", err);
            return damaged(tar);
        }
        drop_slash(tar, member);
        return step;
    }
}

static const uint8_t *map_content(struct conv_archive_reader *reader)
{
    const struct tar_reader *tar = (const struct tar_reader *)reader;
    bool whole = tar->is_file && !tar->is_sparse && tar->input->map;
    return whole ? tar->input->map + tar->content : NULL;
}

static ssize_t read_sparse(struct tar_reader *tar, void *data, size_t size, struct conv_err *err)
{
    struct conv_tar_sparse *sparse = &tar->own.sparse;
    ssize_t got = conv_tar_sparse_read(sparse, tar->input, &tar->left, data, size, err);
    if (got < 0 || (size_t)got == size || sparse->produced == sparse->size)
        return got;
    refuse_end(tar, "inside a member", err);
    return -1;
}

static ssize_t read_content(struct conv_archive_reader *reader, void *data, size_t size,
                            struct conv_err *err)
{
    struct tar_reader *tar = (struct tar_reader *)reader;
    if (!tar->is_file)
        return 0;
    size_t most = tar->left < size ? (size_t)tar->left : size;
    if (tar->is_sparse)
        return read_sparse(tar, data, size, err);
    ssize_t got = conv_archive_input_read(tar->input, data, most, err);
    if (got < 0)
        return -1;
    tar->left -= (uint64_t)got;
    if ((size_t)got < most) {
        refuse_end(tar, "inside a member", err);
        return -1;
    }
    return got;
}

static void close_reader(struct conv_archive_reader *reader)
{
    struct tar_reader *tar = (struct tar_reader *)reader;
    conv_tar_pax_clear(&tar->global);
    conv_tar_pax_clear(&tar->own);
    free(tar);
}

enum conv_status conv_tar_reader_open(struct conv_archive_reader **reader,
                                      struct conv_archive_input *input, struct conv_err *err)
{
    static const struct conv_archive_reader_ops ops = {
        .next = next,
        .map = map_content,
        .read = read_content,
        .close = close_reader,
    };
    struct tar_reader *tar = calloc(1, sizeof *tar);
    if (!tar)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for an archive");
    tar->reader.ops = &ops;
    tar->input = input;
    *reader = &tar->reader;
    return CONV_OK;
}
