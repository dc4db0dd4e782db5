// SPDX-License-Identifier: MIT
// Images whose names differ in the extension alone, and whose outputs have one name, as of a.jpg
// and a.png with --to png. While both exist, the later one is refused. Once one is gone, the other
// one has the name.
#include "io/walk/watch_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "io/files/paths.h"

static struct conv_digest digest_stem(const char *path)
{
    struct conv_digest digest = {0};
    const char *base = conv_paths_base(path), *dot = strrchr(base, '.');
    conv_hash_add(&digest, path, dot ? (size_t)(dot - path) : strlen(path));
    return digest;
}

// True if there are other images of that stem in the folder; if `again`, those that were refused
// arrive once more.
static bool find(struct conv_watch *watch, const char *path, int root, bool again)
{
    char folder[PATH_MAX], other[PATH_MAX];
    struct stat info;
    struct conv_err err;
    const struct dirent *entry;
    const char *base = conv_paths_base(path), *dot = strrchr(base, '.');
    size_t stem = dot ? (size_t)(dot - base) : strlen(base), top = strlen(watch->roots[root].path);
    bool found = false;
    snprintf(folder, sizeof folder, "%.*s", (int)(base - path), path);
    conv_descriptors_take(1);
    DIR *dir = opendir(folder[0] ? folder : ".");
    while (dir && (entry = readdir(dir))) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || (size_t)(end - entry->d_name) != stem ||
            memcmp(entry->d_name, base, stem) != 0 || strcmp(entry->d_name, base) == 0 ||
            !conv_paths_join(other, folder, entry->d_name) || stat(other, &info) != 0 ||
            !S_ISREG(info.st_mode) ||
            !conv_folder_rules_take(watch->rules, other + top + strspn(other + top, "/")))
            continue;
        found = true;
        const struct conv_watch_arrival arrival = {.path = other, .root = root, .is_closed = true};
        if (again && conv_watch_arrivals_add(&watch->arrivals, &arrival, conv_clock_ns(), &err))
            conv_watch_note_failure(watch, other, &err);
    }
    if (dir)
        closedir(dir);
    conv_descriptors_give(1);
    return found;
}

bool conv_watch_has_rival(const struct conv_watch_busy *busy, const char *name, bool is_taken)
{
    struct conv_watch *watch = busy->watch;
    struct conv_digest stem = digest_stem(busy->path), output = {0};
    conv_hash_add(&output, name, strlen(name));
    if (!is_taken && !conv_digest_set_has(&watch->contested, &output))
        return false;
    (void)conv_digest_set_add(&watch->contested, &stem, NULL, NULL);
    (void)conv_digest_set_add(&watch->contested, &output, NULL, NULL);
    bool has_rival = find(watch, busy->path, busy->root, false);
    if (has_rival)
        conv_watch_forget(watch, busy->path);
    return has_rival;
}

void conv_watch_leave(struct conv_watch *watch, const char *path, int root)
{
    struct conv_digest stem = digest_stem(path);
    conv_watch_arrivals_remove(&watch->arrivals, path);
    if (conv_digest_set_has(&watch->contested, &stem))
        (void)find(watch, path, root, true);
}
