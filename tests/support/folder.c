// SPDX-License-Identifier: MIT
#include "support/folder.h"

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[PATH_MAX];

static void stop(const char *what, const char *path)
{
    fprintf(stderr, "test folder: %s: ", what);
    perror(path);
    exit(1);
}

int folder_make(void **)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/conv-unit-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    // Tests compare with resolved paths.
    char *resolved = realpath(folder, NULL);
    if (!resolved)
        return -1;
    snprintf(folder, sizeof folder, "%s", resolved);
    free(resolved);
    return 0;
}

static int remove_one(const char *path, const struct stat *, int, struct FTW *)
{
    return remove(path);
}

// Folders that a test has made unreadable can be removed again.
static int unlock_one(const char *path, const struct stat *, int type, struct FTW *)
{
    return type == FTW_DNR ? chmod(path, 0700) : 0;
}

int folder_remove(void **)
{
    (void)nftw(folder, unlock_one, 16, FTW_PHYS);
    return nftw(folder, remove_one, 16, FTW_PHYS | FTW_DEPTH);
}

const char *folder_path(const char *name)
{
    static _Thread_local char paths[64][PATH_MAX];
    static _Thread_local int next;
    char *path = paths[next++ % 64];
    int length = snprintf(path, PATH_MAX, "%s%s%s", folder, name[0] ? "/" : "", name);
    if (length >= PATH_MAX)
        stop("path too long", name);
    return path;
}

void folder_write_bytes(const char *name, const void *data, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder_path(name));
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        stop("cannot write", path);
}

void folder_write(const char *name, const char *text)
{
    folder_write_bytes(name, text, strlen(text));
}

const char *folder_read(const char *name)
{
    static char text[1 << 16];
    FILE *file = fopen(folder_path(name), "r");
    if (!file)
        return NULL;
    size_t got = fread(text, 1, sizeof text - 1, file);
    text[got] = '\0';
    if (fclose(file) != 0)
        stop("cannot read", name);
    return text;
}

bool folder_has(const char *name)
{
    struct stat info;
    return lstat(folder_path(name), &info) == 0;
}

int folder_count(const char *name)
{
    int count = 0;
    DIR *dir = opendir(folder_path(name));
    if (!dir)
        stop("cannot open", name);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}
