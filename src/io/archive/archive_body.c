// SPDX-License-Identifier: MIT
#include "io/archive/archive_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/archive/member_path.h"
#include "io/files/paths.h"

static char *add_string(char *to, const char **string, const char *from)
{
    size_t size = strlen(from) + 1;
    memcpy(to, from, size);
    *string = to;
    return to + size;
}

struct conv_archive_body *conv_archive_body_make(struct conv_archive_unit *unit,
                                                 const struct conv_archive_member *member)
{
    size_t strings = strlen(member->name) + strlen(member->link) + strlen(member->uname) +
                     strlen(member->gname) + 4;
    struct conv_archive_body *body = malloc(sizeof *body + strings);
    if (!body)
        return NULL;
    *body = (struct conv_archive_body){.unit = unit, .member = *member};
    atomic_init(&body->uses, 1);
    char *end = add_string(body->strings, &body->member.name, member->name);
    end = add_string(end, &body->member.link, member->link);
    end = add_string(end, &body->member.uname, member->uname);
    add_string(end, &body->member.gname, member->gname);
    atomic_fetch_add(&unit->uses, 1);
    return body;
}

void conv_archive_body_retain(struct conv_archive_body *body)
{
    atomic_fetch_add(&body->uses, 1);
}

void conv_archive_body_release(struct conv_archive_body *body)
{
    if (!body || atomic_fetch_sub(&body->uses, 1) > 1)
        return;
    if (body->own)
        atomic_fetch_sub(body->unit->held, (size_t)body->member.size);
    free(body->own);
    conv_archive_unit_release(body->unit);
    free(body);
}

bool conv_archive_body_target(char *target, const struct conv_archive_body *body)
{
    const struct conv_archive_member *member = &body->member;
    char path[2 * PATH_MAX];
    bool is_hard = member->kind == CONV_ARCHIVE_HARDLINK; // else relative to the link's folder
    int folder = is_hard ? 0 : (int)(conv_paths_base(member->name) - member->name);
    if (!is_hard && (member->link[0] == '/' || !member->link[0]))
        return false;
    int length = snprintf(path, sizeof path, "%.*s%s", folder, member->name, member->link);
    return length < (int)sizeof path && (conv_member_path_normal(target, path) || is_hard);
}

void conv_archive_unit_release(struct conv_archive_unit *unit)
{
    if (atomic_fetch_sub(&unit->uses, 1) > 1)
        return;
    if (unit->reader)
        unit->reader->ops->close(unit->reader);
    conv_archive_input_close(&unit->input);
    free(unit);
}
