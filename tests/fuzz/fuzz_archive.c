// SPDX-License-Identifier: MIT
// Archives of every format except plain tar: whatever their bytes, members end, are no longer than
// they declare, and do not expand beyond the limit together. The first byte says if contents are
// read or skipped.
#include <stdlib.h>

#include "io/archive/archive.h"
#include "io/archive/archive_input.h"
#include "io/archive/unpack.h"

static void check(bool good)
{
    if (!good)
        abort();
}

static uint64_t read_member(struct conv_archive_reader *reader,
                            const struct conv_archive_member *member, bool maps)
{
    static uint8_t data[1 << 16];
    uint64_t total = 0;
    struct conv_err err = {0};
    const uint8_t *map = maps && reader->ops->map ? reader->ops->map(reader) : NULL;
    if (map) {
        static volatile uint8_t last;
        for (uint64_t i = 0; i < member->size; i += 512)
            last = map[i]; // all of it can be read
        (void)last;
        return 0;
    }
    for (;;) {
        ssize_t got = reader->ops->read(reader, data, sizeof data, &err);
        check(got >= -1 && got <= (ssize_t)sizeof data);
        if (got < 0)
            check(err.status != CONV_OK && err.text[0] != '\0');
        if (got <= 0)
            return total;
        total += (uint64_t)got;
        check(member->size_unknown || total <= member->size);
    }
}

static void read_all(struct conv_archive_reader *reader, bool skips, size_t size)
{
    struct conv_archive_member member;
    uint64_t total = 0;
    for (size_t count = 0;; count++) {
        struct conv_err err = {0};
        enum conv_archive_step step = reader->ops->next(reader, &member, &err);
        check(count <= size + 1); // each takes at least a byte
        if (step == CONV_ARCHIVE_BAD || step == CONV_ARCHIVE_DAMAGED)
            check(err.status != CONV_OK && err.text[0] != '\0');
        if (step == CONV_ARCHIVE_END || step == CONV_ARCHIVE_DAMAGED)
            return;
        check(member.name && member.link && member.uname && member.gname);
        if (step == CONV_ARCHIVE_MEMBER && member.kind == CONV_ARCHIVE_FILE && !skips)
            total += read_member(reader, &member, count % 2 == 0);
        // Decompression and sparse files each have the limit.
        check(conv_expansion_allows(size + 1, (total > (1 << 20) ? total - (1 << 20) : 0) / 2));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conv_archive_input input;
    struct conv_archive_reader *reader;
    struct conv_err err = {0};
    if (size < 2)
        return 0;
    int how = data[0];
    const struct conv_archive_format *format = conv_archive_of_bytes(data + 1, size - 1);
    if (!format || format == &conv_archive_tar)
        return 0;
    conv_archive_input_open_bytes(&input, data + 1, size - 1);
    if (format->read(&reader, &input, &err) == CONV_OK) {
        read_all(reader, (how & 1) != 0, size);
        reader->ops->close(reader);
    } else {
        check(err.text[0] != '\0');
    }
    conv_archive_input_close(&input);
    return 0;
}
