// SPDX-License-Identifier: MIT
// One set of digests holds facts of several kinds about names.
#include "io/files/output_names.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files/paths.h"

#define MOST_LINKS 8 // on the way to one member

struct conv_output_link {
    struct conv_output_link *next;
    struct conv_digest digest;
    char target[];
};

struct place {
    struct conv_digest_set *facts;
    int archive;
    size_t length;
    char path[2 * PATH_MAX]; // the first `length` bytes count
};

// False for a name that is too long for any output.
static bool open_place(struct place *place, struct conv_output_names *names, int archive,
                       const char *name)
{
    if (strlen(name) >= sizeof place->path)
        return false;
    place->facts = &names->facts;
    place->archive = archive;
    (void)conv_paths_normal(place->path, name);
    place->length = strlen(place->path);
    return true;
}

static struct conv_digest digest_of(const struct place *place, enum conv_output_fact fact)
{
    struct conv_digest digest = {{(uint64_t)fact, (uint64_t)place->archive}};
    conv_hash_add(&digest, place->path, place->length);
    return digest;
}

static bool has(const struct place *place, enum conv_output_fact fact)
{
    struct conv_digest digest = digest_of(place, fact);
    return conv_digest_set_has(place->facts, &digest);
}

static enum conv_status add(const struct place *place, enum conv_output_fact fact,
                            struct conv_err *err)
{
    struct conv_digest digest = digest_of(place, fact);
    return conv_digest_set_add(place->facts, &digest, NULL, err);
}

static bool is_taken(const struct place *place)
{
    return has(place, CONV_OUTPUT_OWN) || has(place, CONV_OUTPUT_RESULT) ||
           has(place, CONV_OUTPUT_RESERVED);
}

// Leaves off the last component. False if it was the only one.
static bool go_up(struct place *place)
{
    while (place->length > 0 && place->path[place->length - 1] != '/')
        place->length--;
    if (place->length == 0)
        return false;
    place->length--;
    return true;
}

// True if no folder of the name is a file. Those below the first that has outputs are new.
static bool has_folders(struct place place)
{
    while (go_up(&place) && !has(&place, CONV_OUTPUT_INSIDE))
        if (is_taken(&place))
            return false;
    return true;
}

static enum conv_status add_folders(struct place place, struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    while (!status && go_up(&place) && !has(&place, CONV_OUTPUT_INSIDE))
        status = add(&place, CONV_OUTPUT_INSIDE, err);
    return status;
}

void conv_output_names_open(struct conv_output_names *names)
{
    *names = (struct conv_output_names){0};
    conv_lock_init(&names->lock);
}

void conv_output_names_close(struct conv_output_names *names)
{
    conv_digest_set_free(&names->facts);
    for (int i = 0; i < CONV_OUTPUT_LINKS; i++)
        for (struct conv_output_link *link; (link = names->links[i]);) {
            names->links[i] = link->next;
            free(link);
        }
    conv_lock_destroy(&names->lock);
}

static struct conv_digest digest_owner(const struct place *place, const char *owner)
{
    struct conv_digest digest = digest_of(place, CONV_OUTPUT_OWNER);
    conv_hash_add(&digest, owner, strlen(owner));
    return digest;
}

// With the lock: gives the name, which is free.
static enum conv_status take(const struct place *place, const struct conv_output_claim *claim,
                             const struct place *original, struct conv_err *err)
{
    bool same = original->length == place->length &&
                memcmp(original->path, place->path, place->length) == 0;
    enum conv_status status = add_folders(*place, err);
    if (!status && claim->is_folder)
        status = add(place, CONV_OUTPUT_INSIDE, err);
    if (!status)
        status = add(place,
                     claim->is_folder ? CONV_OUTPUT_FOLDER
                     : same           ? CONV_OUTPUT_OWN
                                      : CONV_OUTPUT_RESULT,
                     err);
    if (!status && !same)
        status = add(original, CONV_OUTPUT_MOVED, err);
    if (status || !claim->owner)
        return status;
    struct conv_digest owner = digest_owner(place, claim->owner);
    return conv_digest_set_add(place->facts, &owner, NULL, err);
}

static enum conv_status claim_place(const struct place *place,
                                    const struct conv_output_claim *claim,
                                    const struct place *original, bool *repeated,
                                    struct conv_err *err)
{
    struct conv_digest owner = digest_owner(place, claim->owner ? claim->owner : "");
    if (claim->owner && conv_digest_set_has(place->facts, &owner))
        return CONV_OK;
    if (claim->is_folder && (*repeated = has(place, CONV_OUTPUT_FOLDER)))
        return CONV_OK;
    if (is_taken(place))
        return conv_err_usage(err, "another %s has the same output, %s, and came first",
                              claim->original ? "member" : "image", claim->name);
    if (!claim->is_folder && has(place, CONV_OUTPUT_INSIDE))
        return conv_err_usage(err, "other outputs are in a folder of this name, %s", claim->name);
    if (!has_folders(*place))
        return conv_err_usage(err, "another output is a file where %s has a folder", claim->name);
    return take(place, claim, original, err);
}

enum conv_status conv_output_names_claim(struct conv_output_names *names,
                                         const struct conv_output_claim *claim, bool *repeated,
                                         struct conv_err *err)
{
    struct place place, original;
    const char *from = claim->original ? claim->original : claim->name;
    if (!open_place(&place, names, claim->archive, claim->name) ||
        !open_place(&original, names, claim->archive, from))
        return conv_err_limit(err, "path too long");
    conv_lock_acquire(&names->lock);
    enum conv_status status = claim_place(&place, claim, &original, repeated, err);
    // A link to a member whose second version is refused leads to the first.
    if (status && claim->original && !has(&original, CONV_OUTPUT_OWN) &&
        !has(&original, CONV_OUTPUT_MOVED))
        (void)add(&original, CONV_OUTPUT_MISSING, NULL);
    conv_lock_release(&names->lock);
    return status;
}

bool conv_output_names_has(struct conv_output_names *names, int archive, const char *name,
                           enum conv_output_fact fact)
{
    struct place place;
    if (!open_place(&place, names, archive, name))
        return false;
    conv_lock_acquire(&names->lock);
    bool is_so = has(&place, fact);
    conv_lock_release(&names->lock);
    return is_so;
}

void conv_output_names_note(struct conv_output_names *names, int archive, const char *name,
                            enum conv_output_fact fact)
{
    struct place place;
    if (!open_place(&place, names, archive, name))
        return;
    conv_lock_acquire(&names->lock);
    (void)add(&place, fact, NULL); // without memory links to it keep their targets
    conv_lock_release(&names->lock);
}

bool conv_output_names_reserve(struct conv_output_names *names, int archive, const char *original)
{
    struct place place;
    if (!open_place(&place, names, archive, original))
        return false;
    conv_lock_acquire(&names->lock);
    bool is_free = !is_taken(&place) && !has(&place, CONV_OUTPUT_INSIDE) && has_folders(place) &&
                   !add_folders(place, NULL) && !add(&place, CONV_OUTPUT_RESERVED, NULL);
    conv_lock_release(&names->lock);
    return is_free;
}

enum conv_status conv_output_names_link(struct conv_output_names *names, int archive,
                                        const char *original, const char *target,
                                        struct conv_err *err)
{
    struct place place;
    size_t size = strlen(target) + 1;
    struct conv_output_link *link = malloc(sizeof *link + size);
    if (!link || !open_place(&place, names, archive, original)) {
        free(link);
        return conv_err_memory(err, "no memory for the name of a link");
    }
    memcpy(link->target, target, size);
    link->digest = digest_of(&place, CONV_OUTPUT_LINK);
    conv_lock_acquire(&names->lock);
    struct conv_output_link **chain = &names->links[link->digest.word[0] % CONV_OUTPUT_LINKS];
    link->next = *chain;
    *chain = link;
    enum conv_status status = add(&place, CONV_OUTPUT_LINK, err);
    conv_lock_release(&names->lock);
    return status;
}

static const char *find_link(const struct conv_output_names *names, const struct place *place)
    CONV_NEEDS(names->lock)
{
    struct conv_digest digest = digest_of(place, CONV_OUTPUT_LINK);
    if (!conv_digest_set_has(&names->facts, &digest))
        return NULL;
    const struct conv_output_link *link = names->links[digest.word[0] % CONV_OUTPUT_LINKS];
    while (link && memcmp(&link->digest, &digest, sizeof digest) != 0)
        link = link->next;
    return link ? link->target : NULL;
}

// Replaces the first folder on the way that is a link. False if there is none.
static bool follow_folder(struct conv_output_names *names, struct place *place)
    CONV_NEEDS(names->lock)
{
    struct place folder = *place;
    const char *target = NULL;
    for (folder.length = 1; folder.length < place->length && !target; folder.length++)
        if (place->path[folder.length] == '/')
            target = find_link(names, &folder);
    if (!target)
        return false;
    const char *rest = place->path + folder.length - 1;
    int length = snprintf(folder.path, sizeof folder.path, "%s%s", target, rest);
    if (length >= (int)sizeof folder.path || !conv_paths_normal(place->path, folder.path))
        return false;
    place->length = strlen(place->path);
    return true;
}

static enum conv_output_fate fate_of(const struct place *place)
{
    return has(place, CONV_OUTPUT_COPIED)                                  ? CONV_OUTPUT_KEPT
           : has(place, CONV_OUTPUT_MISSING)                               ? CONV_OUTPUT_LOST
           : has(place, CONV_OUTPUT_MOVED)                                 ? CONV_OUTPUT_RENAMED
           : has(place, CONV_OUTPUT_OWN) || has(place, CONV_OUTPUT_INSIDE) ? CONV_OUTPUT_KEPT
                                                                           : CONV_OUTPUT_UNKNOWN;
}

enum conv_output_fate conv_output_names_fate(struct conv_output_names *names, int archive,
                                             const char *original)
{
    struct place place;
    if (!open_place(&place, names, archive, original))
        return CONV_OUTPUT_UNKNOWN;
    conv_lock_acquire(&names->lock);
    enum conv_output_fate fate = fate_of(&place);
    for (int i = 0; !fate && i < MOST_LINKS && follow_folder(names, &place); i++)
        fate = fate_of(&place);
    conv_lock_release(&names->lock);
    return fate;
}
