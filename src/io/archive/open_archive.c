// SPDX-License-Identifier: MIT
// Plain tar is framed here, so that members can be written at any offset; other formats have a
// writer, which appends.
#include "io/archive/open_archive.h"

#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "io/archive/archive_done.h"

static enum conv_status write_at(const struct conv_archive_format *format,
                                 const struct conv_archive_entry *entry, struct conv_err *err)
{
    static const uint8_t zeros[CONV_ARCHIVE_AFTER_MOST];
    struct conv_archive_frame frame;
    struct iovec parts[CONV_ENCODED_PARTS + 2];
    enum conv_status status = format->frame(&entry->member, &frame, err);
    if (status)
        return status;
    int count = 0;
    parts[count++] = (struct iovec){frame.head, frame.before};
    for (int i = 0; i < CONV_ENCODED_PARTS; i++)
        parts[count++] = (struct iovec){(void *)(uintptr_t)entry->content.part[i].data,
                                        entry->content.part[i].size};
    parts[count++] = (struct iovec){(void *)(uintptr_t)zeros, frame.after};
    struct conv_archive_output *output = &entry->to->output;
    if (!output->is_stream)
        return conv_archive_output_write_at(output, entry->offset, parts, count, err);
    for (int i = 0; i < count && !status; i++)
        if (parts[i].iov_len > 0)
            status = conv_archive_output_write(output, parts[i].iov_base, parts[i].iov_len, err);
    return status;
}

enum conv_status conv_open_archive_write(struct conv_open_archive *archive,
                                         const struct conv_archive_target *target,
                                         const struct conv_archive_entry *entry,
                                         struct conv_err *err)
{
    enum conv_status status;
    struct conv_archive_writer *writer = archive->writer;
    if (writer)
        status = writer->ops->append(
            writer, &entry->member,
            entry->member.kind == CONV_ARCHIVE_FILE ? &entry->content : NULL, err);
    else
        status = write_at(target->format, entry, err);
    // If the system could not read the bytes that it should write, the input is the cause.
    const struct conv_archive_body *body = entry->body;
    if (status && body)
        (void)conv_archive_input_touch(&body->unit->input, body->data, (size_t)body->member.size,
                                       err);
    return status;
}

// Before the archive gets its name, so that every complete archive is in the journal.
static enum conv_status note(const struct conv_open_archive *archive,
                             const struct conv_archive_target *target, struct conv_journal *journal,
                             struct conv_err *err)
{
    struct stat out;
    if (archive->output.is_stream || fstat(archive->output.fd, &out) != 0)
        return CONV_OK; // without the line the next run only does the work again
    return conv_archive_done_note(journal, target, &out, err);
}

enum conv_status conv_open_archive_finish(struct conv_open_archive *archive,
                                          const struct conv_archive_target *target, bool keep,
                                          bool fsync, struct conv_journal *journal,
                                          struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    struct conv_archive_output *output = &archive->output;
    if (keep && archive->writer) {
        status = archive->writer->ops->finish(archive->writer, err);
    } else if (keep) {
        static const uint8_t zeros[512];
        for (size_t left = target->format->trailer(output->at), step; left > 0 && !status;
             left -= step) {
            step = left < sizeof zeros ? left : sizeof zeros;
            status = conv_archive_output_write(output, zeros, step, err);
        }
    }
    if (archive->writer)
        archive->writer->ops->close(archive->writer);
    archive->writer = NULL;
    if (keep && !status)
        status = conv_archive_output_settle(output, err);
    if (keep && !status && journal)
        status = note(archive, target, journal, err);
    struct conv_err later;
    enum conv_status closed =
        conv_archive_output_close(output, keep && !status, fsync, status ? &later : err);
    return status ? status : closed;
}
