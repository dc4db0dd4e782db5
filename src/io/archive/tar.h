// SPDX-License-Identifier: MIT
// The parts of the reader and the writer of tar archives. Private to src/io/archive/tar_*.c, apart
// from the functions that archive.c has in its table.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "io/archive/archive.h"
#include "io/archive/archive_input.h"

// --- headers (tar_reader.c) ----------------------------------------------------------------------

// The 512 bytes before each member of a tar archive: POSIX.1-1988 (ustar) with the extensions of
// GNU tar (names of any length, large numbers) and POSIX.1-2001 (PAX).

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

// A number in octal, or of GNU tar in base 256. False if it is neither, or does not fit.
bool conv_tar_parse_number(int64_t *value, const char *field, size_t size);

// Bytes of zeros that follow `size` bytes of content.
static inline size_t conv_tar_padding(uint64_t size)
{
    return (size_t)(-size & (CONV_TAR_BLOCK - 1));
}

// --- sparse files (tar_about.c) ------------------------------------------------------------------

// Sparse files in tar archives: the archive has the parts between the holes, one after the other,
// and a map of their places. Versions of GNU tar have written four kinds of maps.

// The most parts of a map; they take 16 MiB.
#define CONV_TAR_MOST_PARTS ((size_t)1 << 20)

struct conv_tar_part {
    uint64_t at, size; // bytes
};

// Starts as {0}.
struct conv_tar_sparse {
    struct conv_tar_part *parts; // malloc'ed
    size_t count;
    uint64_t size;      // of the file with its holes
    bool is_at_content; // the map comes before the first part (PAX format 1.0)
    bool has_offset;    // of a part whose size is still to come (PAX format 0.0)
    uint64_t offset;    // the same
    size_t next;        // while reading: the part at `produced`, or the next one
    uint64_t produced;  // bytes of the file that were read
};

// Reads the map in a header of type 'S' and in the blocks that follow it. CONV_ERR_FORMAT,
// CONV_ERR_LIMIT, CONV_ERR_MEMORY for this file alone: the input is at its first part then, as
// after CONV_OK. *is_over: the archive ends, or cannot be read; *err has the reason.
enum conv_status conv_tar_sparse_old(struct conv_tar_sparse *sparse,
                                     const struct conv_tar_header *header,
                                     struct conv_archive_input *input, bool *is_over,
                                     struct conv_err *err);

// Reads the map before the first part, and takes its bytes off *left, those of the content.
// CONV_ERR_FORMAT, CONV_ERR_LIMIT, CONV_ERR_MEMORY for this file alone; CONV_ERR_IO and
// CONV_ERR_CANCELLED of the input.
enum conv_status conv_tar_sparse_begin(struct conv_tar_sparse *sparse,
                                       struct conv_archive_input *input, uint64_t *left,
                                       struct conv_err *err);

// True if the parts follow one another within the file and take `left` bytes together.
bool conv_tar_sparse_fits(const struct conv_tar_sparse *sparse, uint64_t left);

// The next bytes of the file, at most `size`; takes those that were read from the input off *left.
// Fewer only at the end of the file, or where the input ends. -1 with *err of the input.
ssize_t conv_tar_sparse_read(struct conv_tar_sparse *sparse, struct conv_archive_input *input,
                             uint64_t *left, uint8_t *data, size_t size, struct conv_err *err);

// --- PAX headers (tar_about.c) -------------------------------------------------------------------

// The contents of PAX headers, and of GNU tar's headers, about the member after them.

// A record or a name is no longer than this: it is read into memory, and a name is a few KiB at
// most.
#define CONV_TAR_MOST_PAX ((size_t)1 << 20)

// Values that replace those of the member's own header. Starts as {0}.
struct conv_tar_pax {
    char *name, *link, *uname, *gname; // malloc'ed; NULL: not given
    bool has_size, has_mtime, has_uid, has_gid;
    bool has_sparse_name; // `name` is that of a sparse file, whose "path" is another one
    bool is_sparse;       // the content is a list of parts
    struct conv_tar_sparse sparse;
    uint64_t size, uid, gid;
    struct timespec mtime;
    struct conv_err bad; // why the member cannot be read; the last field
};

// Adds the records ("LENGTH KEY=VALUE\n") of a PAX header of *left bytes, and takes those that were
// read off *left: the rest is to be skipped. A record that makes no sense is ignored if it is about
// owner or time; otherwise pax->bad is set. Long records that are not needed are skipped. Fails as
// the input does; its end is no failure.
enum conv_status conv_tar_pax_read(struct conv_tar_pax *pax, struct conv_archive_input *input,
                                   uint64_t *left, struct conv_err *err);

// The same for a header of GNU tar that has one name; *to is pax->name or pax->link.
enum conv_status conv_tar_pax_read_name(struct conv_tar_pax *pax, char **to,
                                        struct conv_archive_input *input, uint64_t *left,
                                        struct conv_err *err);

// Replaces the members that are given. The strings then belong to *pax.
void conv_tar_pax_apply(const struct conv_tar_pax *pax, struct conv_archive_member *member);

void conv_tar_pax_clear(struct conv_tar_pax *pax); // {0} afterwards

// --- reading (tar_reader.c) ----------------------------------------------------------------------

// Reads tar archives, plain and compressed: ustar, of GNU tar, and PAX. As conv_archive_format.

bool conv_tar_recognise(const uint8_t *head, size_t size);

enum conv_status conv_tar_reader_open(struct conv_archive_reader **reader,
                                      struct conv_archive_input *input, struct conv_err *err);
enum conv_status conv_tar_reader_open_packed(struct conv_archive_reader **reader,
                                             struct conv_archive_input *input,
                                             struct conv_err *err);

// --- writing (tar_writer.c) ----------------------------------------------------------------------

// Writes plain tar archives: ustar, with the long names and large numbers of GNU tar where they are
// needed. GNU tar, bsdtar, Python and everything built on it read them. The bytes depend on nothing
// but the members: whole seconds, no time of writing. As in struct conv_archive_format.

enum conv_status conv_tar_check(const struct conv_archive_member *member, struct conv_err *err);
enum conv_status conv_tar_frame(const struct conv_archive_member *member,
                                struct conv_archive_frame *frame, struct conv_err *err);
size_t conv_tar_trailer(uint64_t at);

// The same in a compressed stream.
enum conv_status conv_tar_write_gzip(struct conv_archive_writer **writer,
                                     struct conv_archive_output *output, struct conv_err *err);
enum conv_status conv_tar_write_zstd(struct conv_archive_writer **writer,
                                     struct conv_archive_output *output, struct conv_err *err);
