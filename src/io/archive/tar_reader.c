// SPDX-License-Identifier: MIT
// Contents are handed out by pointer from a mapped archive and read once from a stream. A block of
// zeros ends an archive; another archive may follow, as after `cat a.tar b.tar`.
#include "io/archive/tar.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/archive/archive_input.h"
#include "io/archive/unpack.h"

// --- headers -------------------------------------------------------------------------------------

unsigned conv_tar_checksum(const struct conv_tar_header *header, bool is_signed)
{
    const unsigned char *bytes = (const unsigned char *)header;
    const size_t first = offsetof(struct conv_tar_header, checksum);
    unsigned sum = 0;
    for (size_t i = 0; i < CONV_TAR_BLOCK; i++) {
        unsigned byte = bytes[i];
        if (i >= first && i < first + sizeof header->checksum)
            byte = ' ';
        else if (is_signed && byte >= 128)
            byte -= 256; // modulo 2^32, as the sum
        sum += byte;
    }
    return sum;
}

static bool is_header(const void *block)
{
    const struct conv_tar_header *header = block;
    int64_t sum;
    if (!conv_tar_parse_number(&sum, header->checksum, sizeof header->checksum))
        return false;
    return sum == (int64_t)conv_tar_checksum(header, false) ||
           sum == (int64_t)(int)conv_tar_checksum(header, true);
}

static bool is_zeros(const void *data, size_t size)
{
    static const char zeros[CONV_TAR_BLOCK];
    return memcmp(data, zeros, size) == 0;
}

// Big-endian two's complement below the highest bit of the first byte.
static bool parse_base_256(int64_t *value, const unsigned char *bytes, size_t size)
{
    bool is_negative = bytes[0] & 0x40;
    uint64_t number = is_negative ? UINT64_MAX : 0, fill = is_negative ? 0xFF : 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = bytes[i];
        if (i == 0)
            byte = (unsigned char)((byte & 0x7F) | (is_negative ? 0x80 : 0));
        if (i + 8 < size && byte != fill)
            return false; // more than 64 bits
        number = number << 8 | byte;
    }
    *value = (int64_t)number;
    return (*value < 0) == is_negative;
}

bool conv_tar_parse_number(int64_t *value, const char *field, size_t size)
{
    size_t i = 0;
    uint64_t number = 0;
    if ((unsigned char)field[0] & 0x80)
        return parse_base_256(value, (const unsigned char *)field, size);
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        number = number << 3 | (uint64_t)(field[i] - '0'); // 12 digits are 36 bits
    *value = (int64_t)number;
    return i == size || field[i] == ' ' || field[i] == '\0';
}

// Strings of a member: in the header their fields need not end in NUL.
struct names {
    char name[sizeof((struct conv_tar_header *)0)->prefix + 1 + 100 + 1]; // prefix, slash, name
    char link[101], uname[33], gname[33];
};

#define TEXT(TO, FIELD) copy_text(TO, FIELD, sizeof FIELD)

// A field that ends in NUL or is full. `to` has room for one byte more.
static size_t copy_text(char *to, const char *field, size_t size)
{
    size_t length = strnlen(field, size);
    memcpy(to, field, length);
    to[length] = '\0';
    return length;
}

static void set_names(struct conv_archive_member *member, struct names *names,
                      const struct conv_tar_header *header)
{
    bool posix = memcmp(header->magic, "ustar\0", 6) == 0;
    bool gnu = memcmp(header->magic, "ustar ", 6) == 0;
    char base[sizeof header->name + 1];
    size_t prefix = 0, length = TEXT(base, header->name);
    if (posix)
        prefix = TEXT(names->name, header->prefix);
    if (prefix > 0)
        names->name[prefix++] = '/';
    memcpy(names->name + prefix, base, length + 1);
    TEXT(names->link, header->link);
    names->uname[0] = names->gname[0] = '\0';
    if (posix || gnu) {
        TEXT(names->uname, header->uname);
        TEXT(names->gname, header->gname);
    }
    member->name = names->name;
    member->link = names->link;
    member->uname = names->uname;
    member->gname = names->gname;
}

// Numbers that are unreadable count as 0: some programs fill these fields with spaces.
static uint64_t number_or_0(const char *field, size_t size)
{
    int64_t number;
    return conv_tar_parse_number(&number, field, size) && number > 0 ? (uint64_t)number : 0;
}

// Sets the member from its header, except for its kind and size. Numbers that are unreadable become
// 0. The member's strings are those of *names.
static void fill_member(struct conv_archive_member *member, struct names *names,
                        const struct conv_tar_header *header)
{
    int64_t mtime;
    *member = (struct conv_archive_member){
        .mode = (unsigned)number_or_0(header->mode, sizeof header->mode) & 07777,
        .uid = number_or_0(header->uid, sizeof header->uid),
        .gid = number_or_0(header->gid, sizeof header->gid),
    };
    if (conv_tar_parse_number(&mtime, header->mtime, sizeof header->mtime))
        member->mtime.tv_sec = (time_t)mtime;
    set_names(member, names, header);
}

// The kind of a member of this type. Before 1988, folders were files whose names end in a slash.
static enum conv_archive_kind kind_of(char type, const char *name)
{
    size_t length = strlen(name);
    bool has_slash = length > 0 && name[length - 1] == '/';
    return type == '2'                                 ? CONV_ARCHIVE_SYMLINK
           : type == '1'                               ? CONV_ARCHIVE_HARDLINK
           : type == '3' || type == '4' || type == '6' ? CONV_ARCHIVE_DEVICE
           : type == '5' || type == 'D' || has_slash   ? CONV_ARCHIVE_FOLDER
                                                       : CONV_ARCHIVE_FILE;
}

enum block { BLOCK_HEADER, BLOCK_ZEROS, BLOCK_END, BLOCK_OTHER };

// What is `ahead` bytes from here. BLOCK_OTHER also if that is too far to be looked at.
static enum block look_ahead(struct conv_archive_input *input, uint64_t ahead)
{
    const uint8_t *data;
    if (ahead > (input->map ? input->size : CONV_ARCHIVE_INPUT_PEEK - CONV_TAR_BLOCK))
        return BLOCK_OTHER;
    ssize_t got = conv_archive_input_peek(input, &data, (size_t)ahead + CONV_TAR_BLOCK, NULL);
    if (got < (ssize_t)ahead + CONV_TAR_BLOCK)
        return got == (ssize_t)ahead ? BLOCK_END : BLOCK_OTHER;
    return is_zeros(data + ahead, CONV_TAR_BLOCK) ? BLOCK_ZEROS
           : is_header(data + ahead)              ? BLOCK_HEADER
                                                  : BLOCK_OTHER;
}

// Whether a link, a folder or a device, whose header says that it has `size` bytes, has them. Some
// programs write the size of a link's target there, and POSIX.1-2001, whose programs write PAX
// headers, allows a hard link to have a content. The input is after the header.
static bool has_content(struct conv_archive_input *input, uint64_t size, bool is_pax)
{
    enum block next = size > 0 ? look_ahead(input, 0) : BLOCK_HEADER;
    return next == BLOCK_OTHER ||
           (next == BLOCK_ZEROS && is_pax &&
            look_ahead(input, size + conv_tar_padding(size)) == BLOCK_HEADER);
}

// --- the reader ----------------------------------------------------------------------------------

struct tar_reader {
    struct conv_archive_reader reader;
    struct conv_archive_input *input;
    struct conv_archive_input unpacked; // `input` if the archive is compressed
    struct conv_unpack *unpack;         // NULL if it is not
    uint64_t left;                      // bytes of the content that were not read
    size_t padding;                     // after them
    uint64_t content;                   // offset of the content
    bool is_file;                       // the current member has a content for the user
    bool is_sparse;                     // its content has holes: own.sparse
    bool is_pax;                        // it has a PAX header
    bool is_announced;                  // a header about the next member has been read
    uint64_t expanded;                  // bytes of all sparse files
    // What comes before a member's own header. PAX headers replace what GNU tar's say.
    struct conv_tar_pax global, gnu, own;
    struct conv_tar_header header;
    struct names names;
};

bool conv_tar_recognise(const uint8_t *head, size_t size)
{
    const struct conv_tar_header *header = (const struct conv_tar_header *)head;
    // Before 1988 there was no magic; the checksum alone would do, but not for a block of zeros.
    return size >= CONV_TAR_BLOCK && header->name[0] && is_header(head);
}

// --- blocks --------------------------------------------------------------------------------------

static enum conv_status refuse_end(const struct tar_reader *tar, const char *where,
                                   struct conv_err *err)
{
    return conv_err_format(err, "truncated archive: it ends %s, at byte %" PRIu64, where,
                           tar->input->at);
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

// The next header in tar->header. *end: the archive is over, as its two blocks of zeros say.
static enum conv_status next_header(struct tar_reader *tar, bool *end, struct conv_err *err)
{
    uint64_t zeros = 0, start = tar->input->at;
    *end = false;
    for (;;) {
        const uint8_t *block;
        uint64_t at = tar->input->at;
        bool marked = zeros > 0;
        ssize_t got = conv_archive_input_peek(tar->input, &block, CONV_TAR_BLOCK, err);
        if (got < 0)
            return err->status;
        *end = got == 0 && zeros >= 2 * CONV_TAR_BLOCK;
        if (*end)
            return CONV_OK;
        if (got == 0)
            return refuse_end(
                tar, marked ? "within the mark of its end" : "without the mark of its end", err);
        if (got < CONV_TAR_BLOCK && !marked)
            return refuse_end(tar, "inside a header", err);
        bool zero = is_zeros(block, (size_t)got);
        if (!zero && (got < CONV_TAR_BLOCK || !is_header(block)))
            return conv_err_format(
                err,
                marked ? "byte %" PRIu64 ": the data after the end of the archive is not an archive"
                : start == 0 ? "not a tar archive: no header at byte %" PRIu64
                             : "damaged archive: no header at byte %" PRIu64,
                at);
        if (!zero)
            memcpy(&tar->header, block, CONV_TAR_BLOCK);
        if (conv_archive_input_skip(tar->input, CONV_TAR_BLOCK, err) < 0)
            return err->status;
        if (!zero)
            return CONV_OK;
        zeros += (uint64_t)got;
    }
}

// The size in the header. If it is no number, it counts as 0, and the member cannot be read.
static uint64_t parse_size(struct tar_reader *tar)
{
    int64_t number;
    if (conv_tar_parse_number(&number, tar->header.size, sizeof tar->header.size) && number >= 0)
        return (uint64_t)number;
    (void)conv_err_format(&tar->own.bad, "its size is not a number");
    return 0;
}

// --- headers about the next member ---------------------------------------------------------------

// Reads a header of type 'x', 'X', 'g', 'L' or 'K'.
static enum conv_status read_about(struct tar_reader *tar, char type, struct conv_err *err)
{
    struct conv_tar_pax *gnu = &tar->gnu, *pax = type == 'g' ? &tar->global : &tar->own;
    tar->left = parse_size(tar);
    tar->padding = conv_tar_padding(tar->left);
    tar->is_announced |= type != 'g';
    tar->is_pax |= type == 'x' || type == 'X';
    enum conv_status status =
        type == 'L' || type == 'K'
            ? conv_tar_pax_read_name(gnu, type == 'L' ? &gnu->name : &gnu->link, tar->input,
                                     &tar->left, err)
            : conv_tar_pax_read(pax, tar->input, &tar->left, err);
    return status ? status : skip_rest(tar, err);
}

// --- members -------------------------------------------------------------------------------------

static void set_member(struct tar_reader *tar, struct conv_archive_member *member)
{
    struct conv_tar_pax *own = &tar->own;
    fill_member(member, &tar->names, &tar->header);
    if (!own->has_size && !tar->global.has_size)
        member->size = parse_size(tar);
    conv_tar_pax_apply(&tar->global, member);
    conv_tar_pax_apply(&tar->gnu, member);
    conv_tar_pax_apply(own, member);
    if (!own->bad.status && tar->gnu.bad.status)
        own->bad = tar->gnu.bad;
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
    enum conv_status status = CONV_OK;
    if (sparse->is_at_content)
        status = conv_tar_sparse_begin(sparse, tar->input, &tar->left, err);
    if (!status && !conv_tar_sparse_fits(sparse, tar->left))
        status = conv_err_format(err, "the map of a sparse file is malformed");
    tar->expanded += status ? 0 : sparse->size; // both have 63 bits, and a sum is checked at once
    if (!status && !conv_expansion_allows(conv_archive_input_stored(tar->input), tar->expanded)) {
        tar->expanded -= sparse->size;
        status = conv_err_limit(err, "%s", CONV_EXPANSION_TEXT);
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
    char type = tar->header.type;
    bool is_own = type >= '1' && type <= '6'; // of a kind without a content
    bool is_there = is_own ? has_content(tar->input, member->size, tar->is_pax) : member->size > 0;
    tar->left = is_there ? member->size : 0;
    tar->padding = conv_tar_padding(tar->left);
    tar->content = tar->input->at;
    member->size = 0;
    bool is_both = type == '1' && is_there && tar->is_pax; // a link, and the file
    member->kind = is_both ? CONV_ARCHIVE_FILE : kind_of(type, member->name);
    if (tar->own.bad.status)
        return refuse_member(tar, tar->own.bad.status, tar->own.bad.text, err);
    if (tar->left > UINT64_MAX - CONV_TAR_BLOCK) // cannot be: sizes have 63 bits
        return refuse_member(tar, CONV_ERR_LIMIT, "its size is out of range", err);
    if (member->kind != CONV_ARCHIVE_FILE && (is_own || type == 'D' || !is_there))
        return CONV_ARCHIVE_MEMBER; // 'D' has a list of names
    if (member->kind == CONV_ARCHIVE_FOLDER)
        return refuse_member(tar, CONV_ERR_FORMAT, "a file has the name of a folder", err);
    if (tar->global.is_sparse)
        return refuse_member(tar, CONV_ERR_UNSUPPORTED, "one map for all sparse files is not read",
                             err);
    if (type == 'S' || tar->own.is_sparse)
        return begin_sparse(tar, member, err);
    if (type == 'M')
        return refuse_member(tar, CONV_ERR_UNSUPPORTED,
                             "is the rest of a file that began in another archive", err);
    if (type >= 'A' && type <= 'Z') { // a program's own; all others are files (POSIX.1-2001)
        conv_err_unsupported(err, "is a member of unknown type (0x%02X)", (unsigned char)type);
        return CONV_ARCHIVE_BAD;
    }
    member->size = tar->left;
    tar->is_file = true;
    return CONV_ARCHIVE_MEMBER;
}

static void drop_slash(struct tar_reader *tar, struct conv_archive_member *member)
{
    size_t length = strlen(member->name);
    char *own = member->name == tar->names.name ? tar->names.name
                : member->name == tar->gnu.name ? tar->gnu.name
                                                : tar->own.name;
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
    tar->is_file = tar->is_sparse = tar->is_pax = tar->is_announced = false;
    conv_tar_pax_clear(&tar->gnu);
    conv_tar_pax_clear(&tar->own);
    *member = (struct conv_archive_member){.name = "", .link = "", .uname = "", .gname = ""};
    for (;;) {
        if (skip_rest(tar, err) || next_header(tar, &end, err))
            return damaged(tar);
        if (end && tar->is_announced) {
            conv_err_format(err, "damaged archive: it ends after a header about another member");
            return damaged(tar);
        }
        if (end)
            return CONV_ARCHIVE_END;
        char type = tar->header.type;
        if (type && strchr("LKxgX", type)) {
            if (read_about(tar, type, err))
                return damaged(tar);
            if (!tar->global.bad.status)
                continue;
            fill_member(member, &tar->names, &tar->header); // as if it were a member
            *err = tar->global.bad;
            tar->global.bad.status = CONV_OK;
            return CONV_ARCHIVE_BAD;
        }
        bool is_over = false;
        tar->is_announced = false;
        set_member(tar, member);
        if (type == 'S' &&
            conv_tar_sparse_old(&tar->own.sparse, &tar->header, tar->input, &is_over,
                                &tar->own.bad) &&
            is_over) {
            *err = tar->own.bad;
            return damaged(tar);
        }
        enum conv_archive_step step = set_kind(tar, member, err);
        if (type == 'V') // a label
            continue;
        // With a mapped archive it is known at once whether the content is complete.
        if (tar->input->map && tar->left > tar->input->size - tar->input->at) {
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
    conv_tar_pax_clear(&tar->gnu);
    conv_tar_pax_clear(&tar->own);
    conv_archive_input_close(&tar->unpacked);
    conv_unpack_close(tar->unpack);
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
        return conv_err_memory(err, "no memory for an archive");
    tar->reader.ops = &ops;
    tar->input = input;
    tar->unpacked.fd = -1;
    *reader = &tar->reader;
    return CONV_OK;
}

enum conv_status conv_tar_reader_open_packed(struct conv_archive_reader **reader,
                                             struct conv_archive_input *input, struct conv_err *err)
{
    enum conv_status status = conv_tar_reader_open(reader, input, err);
    if (status)
        return status;
    struct tar_reader *tar = (struct tar_reader *)*reader;
    status = conv_unpack_open(&tar->unpack, input, err);
    if (!status)
        status = conv_archive_input_open_unpacked(&tar->unpacked, tar->unpack, err);
    tar->input = &tar->unpacked;
    if (status) {
        close_reader(*reader);
        *reader = NULL;
    }
    return status;
}
