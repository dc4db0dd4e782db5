// SPDX-License-Identifier: MIT
#include "io/archive/tar_header.h"

#include <string.h>

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
