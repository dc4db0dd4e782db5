// SPDX-License-Identifier: MIT
#include "base/digest_set.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

#define FIRST_CAPACITY 1024

static bool is_zero(const struct conv_digest *digest)
{
    return (digest->word[0] | digest->word[1]) == 0;
}

static void draw_key(struct conv_digest_set *set)
{
    if (getrandom(&set->key, sizeof set->key, GRND_NONBLOCK) == (ssize_t)sizeof set->key)
        return;
    // Early in the system's start there may be no random bytes yet.
    uint64_t seed[2] = {conv_clock_ns(), (uint64_t)(uintptr_t)set};
    conv_hash_add(&set->key, seed, sizeof seed);
}

// The slot of the digest, or the free slot where it belongs.
static struct conv_digest *find(const struct conv_digest_set *set, const struct conv_digest *digest)
{
    struct conv_digest place = set->key;
    conv_hash_add(&place, digest, sizeof *digest);
    size_t at = place.word[0] & (set->capacity - 1);
    while (!is_zero(&set->slots[at]) && memcmp(&set->slots[at], digest, sizeof *digest) != 0)
        at = (at + 1) & (set->capacity - 1);
    return &set->slots[at];
}

static enum conv_status grow(struct conv_digest_set *set, struct conv_err *err)
{
    struct conv_digest *old = set->slots;
    size_t old_capacity = set->capacity;
    size_t capacity = old_capacity ? 2 * old_capacity : FIRST_CAPACITY;
    struct conv_digest *slots = calloc(capacity, sizeof *slots);
    if (!slots)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for a table of %zu entries", capacity);
    if (!old)
        draw_key(set);
    set->slots = slots;
    set->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (!is_zero(&old[i]))
            *find(set, &old[i]) = old[i];
    free(old);
    return CONV_OK;
}

void conv_digest_set_free(struct conv_digest_set *set)
{
    free(set->slots);
    *set = (struct conv_digest_set){0};
}

bool conv_digest_set_has(const struct conv_digest_set *set, const struct conv_digest *digest)
{
    return set->capacity > 0 && !is_zero(digest) && !is_zero(find(set, digest));
}

enum conv_status conv_digest_set_add(struct conv_digest_set *set, const struct conv_digest *digest,
                                     bool *added, struct conv_err *err)
{
    bool unused;
    added = added ? added : &unused;
    *added = false;
    // At most three quarters full.
    if (4 * (set->count + 1) > 3 * set->capacity) {
        enum conv_status status = grow(set, err);
        if (status)
            return status;
    }
    if (is_zero(digest))
        return CONV_OK;
    struct conv_digest *slot = find(set, digest);
    *added = is_zero(slot);
    set->count += *added;
    *slot = *digest;
    return CONV_OK;
}
