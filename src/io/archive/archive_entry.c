// SPDX-License-Identifier: MIT
// The strings of a copy follow it in the same block of memory; its content is in a buffer that is
// used again.
#include "io/archive/archive_entry.h"

#include <stdlib.h>
#include <string.h>

static char *copy_string(char *to, const char **string)
{
    size_t size = strlen(*string) + 1;
    memcpy(to, *string, size);
    *string = to;
    return to + size;
}

struct conv_archive_entry *conv_archive_entry_copy(struct conv_archive_buffers *buffers,
                                                   const struct conv_archive_entry *from)
{
    const struct conv_archive_member *member = &from->member;
    size_t strings = strlen(member->name) + strlen(member->link) + strlen(member->uname) +
                     strlen(member->gname) + 4;
    size_t content = from->body ? 0 : from->content.size;
    struct conv_archive_entry *entry = malloc(sizeof *entry + strings);
    uint8_t *bytes = content ? conv_archive_buffers_take(buffers, content) : NULL;
    if (!entry || (content && !bytes)) {
        free(entry);
        conv_archive_buffers_give(buffers, bytes);
        return NULL;
    }
    *entry = *from;
    char *end = copy_string((char *)(entry + 1), &entry->member.name);
    end = copy_string(end, &entry->member.link);
    end = copy_string(end, &entry->member.uname);
    copy_string(end, &entry->member.gname);
    entry->own = bytes;
    entry->copied = sizeof *entry + strings + content;
    if (from->body) {
        conv_archive_body_retain(from->body);
        return entry;
    }
    entry->content = (struct conv_encoded){.part = {{bytes, content}}, .size = content};
    for (int i = 0; i < CONV_ENCODED_PARTS; i++) {
        size_t size = from->content.part[i].size;
        if (size > 0)
            memcpy(bytes, from->content.part[i].data, size);
        bytes += size;
    }
    return entry;
}

void conv_archive_entry_free(struct conv_archive_buffers *buffers, struct conv_archive_entry *entry)
{
    if (entry && !entry->is_dropped)
        conv_archive_body_release(entry->body);
    if (entry)
        conv_archive_buffers_give(buffers, entry->own);
    free(entry);
}
