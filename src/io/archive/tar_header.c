// SPDX-License-Identifier: MIT
// What the header of a member of a tar archive says about it.
#include <string.h>

#include "io/archive/tar.h"

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

bool conv_tar_is_header(const void *block)
{
    const struct conv_tar_header *header = block;
    int64_t sum;
    if (!conv_tar_parse_number(&sum, header->checksum, sizeof header->checksum))
        return false;
    return sum == (int64_t)conv_tar_checksum(header, false) ||
           sum == (int64_t)(int)conv_tar_checksum(header, true);
}

bool conv_tar_is_zeros(const void *data, size_t size)
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

// --- members -------------------------------------------------------------------------------------

#define TEXT(TO, FIELD) copy_text(TO, FIELD, sizeof FIELD)

// A field that ends in NUL or is full. `to` has room for one byte more.
static size_t copy_text(char *to, const char *field, size_t size)
{
    size_t length = strnlen(field, size);
    memcpy(to, field, length);
    to[length] = '\0';
    return length;
}

static void set_names(struct conv_archive_member *member, struct conv_tar_names *names,
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

void conv_tar_member_fill(struct conv_archive_member *member, struct conv_tar_names *names,
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

enum conv_archive_kind conv_tar_member_kind(char type, const char *name)
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
    return conv_tar_is_zeros(data + ahead, CONV_TAR_BLOCK) ? BLOCK_ZEROS
           : conv_tar_is_header(data + ahead)              ? BLOCK_HEADER
                                                           : BLOCK_OTHER;
}

bool conv_tar_member_has_content(struct conv_archive_input *input, uint64_t size, bool is_pax)
{
    enum block next = size > 0 ? look_ahead(input, 0) : BLOCK_HEADER;
    return next == BLOCK_OTHER ||
           (next == BLOCK_ZEROS && is_pax &&
            look_ahead(input, size + conv_tar_padding(size)) == BLOCK_HEADER);
}
