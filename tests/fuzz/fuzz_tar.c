// SPDX-License-Identifier: MIT
// libFuzzer target: tar archives. Members must lie within the archive, and the writer must be able
// to write each of them so that the reader reads it again.
#include "fuzz/fuzz.h"
#include "io/archive/archive.h"
#include "io/archive/archive_input.h"

static void write_again(const struct conv_archive_member *member)
{
    static struct conv_archive_frame frame;
    struct conv_archive_input input;
    struct conv_archive_reader *reader;
    struct conv_archive_member again;
    struct conv_err err = {0};
    if (conv_archive_tar.frame(member, &frame, &err))
        return; // empty names, devices
    if (frame.before > sizeof frame.head || frame.before % 512 != 0 || frame.after > 511)
        fail("frame", member->name);
    uint8_t *head = malloc(frame.before); // to the byte, so that a read beyond the end is seen
    if (!head)
        abort();
    memcpy(head, frame.head, frame.before);
    conv_archive_input_open_bytes(&input, head, frame.before);
    if (conv_archive_tar.read(&reader, &input, &err))
        abort();
    enum conv_archive_step step = reader->ops->next(reader, &again, &err);
    bool has_content = member->size > 0; // which is not there
    if (step != (has_content ? CONV_ARCHIVE_DAMAGED : CONV_ARCHIVE_MEMBER))
        fail("own header", err.text);
    if (!has_content && member->kind != CONV_ARCHIVE_FOLDER &&
        (again.mode != member->mode || again.mtime.tv_sec != member->mtime.tv_sec ||
         strcmp(again.link, member->link) != 0 || again.uid != member->uid))
        fail("own header", "of another member");
    reader->ops->close(reader);
    conv_archive_input_close(&input);
    free(head);
}

// The first MiB of a file with holes; true if there is less, and not because the archive ends.
static bool read_sparse(struct conv_archive_reader *reader,
                        const struct conv_archive_member *member)
{
    static uint8_t data[4096];
    struct conv_err err = {0};
    uint64_t done = 0;
    ssize_t got = 1;
    while (got > 0 && done < 1 << 20) {
        got = reader->ops->read(reader, data, sizeof data, &err);
        done += got > 0 ? (uint64_t)got : 0;
    }
    return got == 0 && done != member->size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conv_archive_input input;
    struct conv_archive_reader *reader;
    struct conv_archive_member member;
    struct conv_err err = {0};
    uint8_t *copy = malloc(size + !size);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    conv_archive_input_open_bytes(&input, copy, size);
    if (conv_archive_tar.read(&reader, &input, &err))
        abort();
    for (;;) {
        enum conv_archive_step step = reader->ops->next(reader, &member, &err);
        if (step == CONV_ARCHIVE_DAMAGED && (!err.status || !err.text[0]))
            fail("damaged", "without a reason");
        if (step == CONV_ARCHIVE_END || step == CONV_ARCHIVE_DAMAGED)
            break;
        if (!member.name || !member.link || !member.uname || !member.gname)
            fail("member", "without a name");
        const uint8_t *content = reader->ops->map(reader);
        bool is_file = step == CONV_ARCHIVE_MEMBER && member.kind == CONV_ARCHIVE_FILE;
        if (is_file && !content && read_sparse(reader, &member) && member.size > 0)
            fail("sparse file", "of another size");
        if (is_file && content &&
            (content < input.map || member.size > size ||
             (size_t)(content - input.map) > size - member.size))
            fail("content", "outside the archive");
        if (step == CONV_ARCHIVE_MEMBER)
            write_again(&member);
    }
    reader->ops->close(reader);
    conv_archive_input_close(&input);
    free(copy);
    return 0;
}
