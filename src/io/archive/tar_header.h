// SPDX-License-Identifier: MIT
// The 512 bytes before each member of a tar archive: POSIX.1-1988 (ustar) with the extensions of
// GNU tar (names of any length, large numbers) and POSIX.1-2001 (PAX). Private to src/io/tar_*.c.
#ifndef CONV_ARCHIVE_TAR_HEADER_H
#define CONV_ARCHIVE_TAR_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONV_TAR_BLOCK 512

// Programs write archives in records of this size, padded with zeros.
#define CONV_TAR_RECORD 10240

struct conv_tar_header {
    char name[100];
    char mode[8], uid[8], gid[8];
    char size[12], mtime[12];
    char checksum[8];
    char type;
    char link[100];
    char magic[8]; // "ustar\0" "00", or of GNU tar "ustar  \0"
    char uname[32], gname[32];
    char major[8], minor[8];
    char prefix[155]; // of GNU tar: something else
    char unused[12];
};

_Static_assert(sizeof(struct conv_tar_header) == CONV_TAR_BLOCK, "a header is one block");

// The sum of all bytes, with spaces in place of the checksum itself. `is_signed`: with signed
// bytes, as some old programs computed it.
unsigned conv_tar_checksum(const struct conv_tar_header *header, bool is_signed);

// True if the checksum is right.
bool conv_tar_is_header(const void *block);

bool conv_tar_is_zeros(const void *data, size_t size); // CONV_TAR_BLOCK at most

// A number in octal, or of GNU tar in base 256. False if it is neither, or does not fit.
bool conv_tar_parse_number(int64_t *value, const char *field, size_t size);

// Bytes of zeros that follow `size` bytes of content.
static inline size_t conv_tar_padding(uint64_t size)
{
    return (size_t)(-size & (CONV_TAR_BLOCK - 1));
}

#endif
