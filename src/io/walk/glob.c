// SPDX-License-Identifier: MIT
// Expands braces, splits at `**`, and leaves the rest to fnmatch().
#include "io/walk/walk.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define GLOB_SIZE 4096
#define MOST_ALTERNATIVES 1024

// --- braces --------------------------------------------------------------------------------------

// Called for each alternative. False ends the expansion.
typedef bool (*alternative_fn)(void *user, const char *glob);

// Skips one escaped character, bracket expression or plain character at `at`.
static const char *skip_unit(const char *at)
{
    if (*at == '\\' && at[1])
        return at + 2;
    if (*at != '[')
        return at + 1;
    const char *end = at + 1;
    end += *end == '!' || *end == '^';
    end += *end == ']'; // the first one is a member
    while (*end && *end != ']')
        end += end[0] == '\\' && end[1] ? 2 : 1;
    return *end ? end + 1 : at + 1; // without an end the bracket is a character
}

// The next ',' or '}' that belongs to the brace before `at`; NULL: there is none.
static const char *find_end(const char *at)
{
    for (int depth = 0; *at;) {
        if (depth == 0 && (*at == ',' || *at == '}'))
            return at;
        depth += *at == '{';
        depth -= *at == '}';
        at = skip_unit(at);
    }
    return NULL;
}

// The first brace that has a comma and an end; other braces are plain characters, as in shells.
// NULL: none.
static const char *find_brace(const char *glob)
{
    for (const char *at = glob; *at; at = skip_unit(at)) {
        if (*at != '{')
            continue;
        bool comma = false;
        const char *end = find_end(at + 1);
        for (; end && *end == ','; end = find_end(end + 1))
            comma = true;
        if (end && comma)
            return at;
    }
    return NULL;
}

static bool expand(const char *glob, alternative_fn each, void *user)
{
    char one[GLOB_SIZE];
    const char *brace = find_brace(glob), *last = brace;
    if (!brace)
        return each(user, glob);
    while (*last != '}')
        last = find_end(last + 1);
    for (const char *at = brace; at != last;) {
        const char *end = find_end(at + 1);
        int length = snprintf(one, sizeof one, "%.*s%.*s%s", (int)(brace - glob), glob,
                              (int)(end - at - 1), at + 1, last + 1);
        if (length >= 0 && (size_t)length < sizeof one && !expand(one, each, user))
            return false;
        at = end;
    }
    return true;
}

static bool count_alternative(void *user, const char *)
{
    int *count = user;
    return ++*count <= MOST_ALTERNATIVES;
}

enum conv_status conv_glob_check(const char *glob, struct conv_err *err)
{
    int count = 0;
    if (!*glob)
        return conv_err_usage(err, "the glob is empty");
    if (strlen(glob) >= GLOB_SIZE)
        return conv_err_usage(err, "the glob is longer than %d bytes", GLOB_SIZE - 1);
    if (!expand(glob, count_alternative, &count))
        return conv_err_usage(err, "the glob '%.64s' has more than %d alternatives", glob,
                              MOST_ALTERNATIVES);
    return CONV_OK;
}

// --- paths ---------------------------------------------------------------------------------------

// The first `**` that is a whole component; NULL: none.
static const char *find_stars(const char *glob)
{
    for (const char *at = glob; (at = strstr(at, "**")) != NULL; at++)
        if ((at == glob || at[-1] == '/') && (at[2] == '/' || !at[2]))
            return at;
    return NULL;
}

// The part after the first `count` slashes of the path; NULL if it has fewer.
static const char *skip_components(const char *path, int count)
{
    for (; count > 0 && path; count--) {
        path = strchr(path, '/');
        path = path ? path + 1 : NULL;
    }
    return path;
}

enum match { MATCH_NO, MATCH_YES, MATCH_NEVER };

// MATCH_NEVER: the part before the first `**` matches, but what follows it matches nowhere, and
// would not match from any later beginning of the path either.
static enum match match_path(const char *glob, const char *path)
{
    char head[GLOB_SIZE], start[GLOB_SIZE];
    const char *stars = find_stars(glob);
    if (!stars)
        return fnmatch(glob, path, FNM_PATHNAME) == 0 ? MATCH_YES : MATCH_NO;
    int components = 0;
    for (const char *at = glob; at < stars; at++)
        components += *at == '/';
    const char *rest = skip_components(path, components);
    if (!rest || (size_t)(rest - path) >= sizeof start)
        return MATCH_NO;
    if (components > 0) { // without the slash before the stars
        snprintf(head, sizeof head, "%.*s", (int)(stars - glob) - 1, glob);
        snprintf(start, sizeof start, "%.*s", (int)(rest - path) - 1, path);
        if (fnmatch(head, start, FNM_PATHNAME) != 0)
            return MATCH_NO;
    }
    if (!stars[2])
        return MATCH_YES;
    enum match match = MATCH_NO;
    for (; rest && match == MATCH_NO; rest = skip_components(rest, 1))
        match = match_path(stars + 3, rest);
    return match == MATCH_YES ? MATCH_YES : MATCH_NEVER;
}

struct subject {
    const char *relative;
    bool is_folder;
    bool matched;
};

// Matches a glob without braces.
static bool match_alternative(void *user, const char *glob)
{
    struct subject *subject = user;
    char shorter[GLOB_SIZE];
    size_t length = strlen(glob);
    if (length > 1 && glob[length - 1] == '/') {
        if (!subject->is_folder)
            return true;
        snprintf(shorter, sizeof shorter, "%.*s", (int)length - 1, glob);
        glob = shorter;
    }
    const char *base = strrchr(subject->relative, '/');
    base = base ? base + 1 : subject->relative;
    if (!strchr(glob, '/') && strcmp(glob, "**") != 0)
        subject->matched = fnmatch(glob, base, 0) == 0;
    else
        subject->matched = match_path(glob + (*glob == '/'), subject->relative) == MATCH_YES;
    return !subject->matched;
}

bool conv_glob_match(const char *glob, const char *relative, bool is_folder)
{
    struct subject subject = {relative, is_folder, false};
    expand(glob, match_alternative, &subject);
    return subject.matched;
}
