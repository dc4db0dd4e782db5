// SPDX-License-Identifier: MIT
#include "io/archive/archive_folders.h"

#include <stdio.h>
#include <string.h>

#include "io/files/paths.h"

// A dot at the beginning is part of the name and does not begin an extension.
static size_t short_length(const char *base)
{
    return base[0] ? 1 + strcspn(base + 1, ".") : 0;
}

static struct conv_digest digest_of(const char *path, bool is_archive)
{
    const char *base = conv_paths_base(path);
    struct conv_digest digest = {0};
    conv_hash_add(&digest, base, is_archive ? short_length(base) : strcspn(base, "/"));
    return digest;
}

enum conv_status conv_archive_folders_add(struct conv_archive_folders *folders, const char *path,
                                          bool is_archive, struct conv_err *err)
{
    struct conv_digest digest = digest_of(path, is_archive);
    bool added;
    enum conv_status status = conv_digest_set_add(&folders->used, &digest, &added, err);
    if (status || added)
        return status;
    return conv_digest_set_add(&folders->shared, &digest, NULL, err);
}

void conv_archive_folders_name(char name[NAME_MAX + 1], const struct conv_archive_folders *folders,
                               const char *path)
{
    const char *base = conv_paths_base(path);
    struct conv_digest digest = digest_of(path, true);
    bool shared = folders->shared.count > 0 && conv_digest_set_has(&folders->shared, &digest);
    snprintf(name, NAME_MAX + 1, "%.*s", shared ? NAME_MAX : (int)short_length(base), base);
}

void conv_archive_folders_free(struct conv_archive_folders *folders)
{
    conv_digest_set_free(&folders->used);
    conv_digest_set_free(&folders->shared);
}
