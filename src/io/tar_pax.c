// SPDX-License-Identifier: MIT
#include "io/tar_pax.h"

#include <stdlib.h>
#include <string.h>

static enum conv_status refuse(struct conv_err *err)
{
    return conv_err_set(err, CONV_ERR_FORMAT, "damaged archive: a PAX header is malformed");
}

enum conv_status conv_tar_pax_set(char **to, const char *text, size_t size, struct conv_err *err)
{
    if (memchr(text, '\0', size))
        return refuse(err);
    char *copy = malloc(size + 1);
    if (!copy)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the name of a member");
    memcpy(copy, text, size);
    copy[size] = '\0';
    free(*to);
    *to = copy;
    return CONV_OK;
}

// Decimal digits. Returns how many bytes they take; 0 if there are none or the number is too large.
static size_t parse_digits(uint64_t *value, const char *text, size_t size)
{
    size_t i = 0;
    *value = 0;
    for (; i < size && text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(*value, (uint64_t)10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(text[i] - '0'), value))
            return 0;
    return i;
}

static bool parse_whole(uint64_t *value, const char *text, size_t size)
{
    return size > 0 && parse_digits(value, text, size) == size && *value <= INT64_MAX;
}

// "1700000000.123456789", perhaps negative.
static bool parse_time(struct timespec *time, const char *text, size_t size)
{
    bool is_negative = size > 0 && text[0] == '-';
    uint64_t seconds;
    size_t i = is_negative, digits = parse_digits(&seconds, text + i, size - i);
    if (digits == 0 || seconds > INT64_MAX)
        return false;
    i += digits;
    long nanoseconds = 0, unit = 100000000;
    if (i < size && text[i] == '.')
        for (i++; i < size && text[i] >= '0' && text[i] <= '9'; i++, unit /= 10)
            nanoseconds += (text[i] - '0') * unit;
    time->tv_sec = (time_t)(is_negative ? -(int64_t)seconds : (int64_t)seconds);
    time->tv_nsec = nanoseconds;
    if (is_negative && nanoseconds > 0) {
        time->tv_sec--;
        time->tv_nsec = 1000000000 - nanoseconds;
    }
    return i == size;
}

#define IS(NAME) (key_size == sizeof NAME - 1 && memcmp(key, NAME, key_size) == 0)

// A key after "GNU.sparse.".
static enum conv_status set_sparse(struct conv_tar_pax *pax, const char *key, size_t key_size,
                                   const char *value, size_t size, struct conv_err *err)
{
    struct conv_tar_sparse *sparse = &pax->sparse;
    uint64_t number = 0;
    pax->is_sparse = true;
    if (IS("map"))
        return conv_tar_sparse_list(sparse, value, size, err);
    if (!parse_whole(&number, value, size))
        return refuse(err);
    if (IS("major"))
        sparse->is_at_content = number > 0;
    if (IS("size") || IS("realsize"))
        sparse->size = number;
    if (IS("offset")) {
        sparse->offset = number;
        sparse->has_offset = true;
    }
    if (!IS("numbytes"))
        return CONV_OK;
    if (!sparse->has_offset)
        return refuse(err);
    sparse->has_offset = false;
    return conv_tar_sparse_add(sparse, sparse->offset, number, err);
}

static enum conv_status set_value(struct conv_tar_pax *pax, const char *key, size_t key_size,
                                  const char *value, size_t size, struct conv_err *err)
{
    if (IS("path") || IS("GNU.sparse.name"))
        return conv_tar_pax_set(&pax->name, value, size, err);
    if (IS("linkpath"))
        return conv_tar_pax_set(&pax->link, value, size, err);
    if (IS("uname"))
        return conv_tar_pax_set(&pax->uname, value, size, err);
    if (IS("gname"))
        return conv_tar_pax_set(&pax->gname, value, size, err);
    bool good = true;
    if (IS("size"))
        good = pax->has_size = parse_whole(&pax->size, value, size);
    else if (IS("uid"))
        good = pax->has_uid = parse_whole(&pax->uid, value, size);
    else if (IS("gid"))
        good = pax->has_gid = parse_whole(&pax->gid, value, size);
    else if (IS("mtime"))
        good = pax->has_mtime = parse_time(&pax->mtime, value, size);
    else if (key_size >= 11 && memcmp(key, "GNU.sparse.", 11) == 0)
        return set_sparse(pax, key + 11, key_size - 11, value, size, err);
    return good ? CONV_OK : refuse(err);
}
#undef IS

enum conv_status conv_tar_pax_parse(struct conv_tar_pax *pax, const char *data, size_t size,
                                    struct conv_err *err)
{
    enum conv_status status = CONV_OK;
    while (size > 0 && !status) {
        uint64_t length;
        size_t digits = parse_digits(&length, data, size);
        if (digits == 0 || length > size || length < digits + 3 || data[digits] != ' ' ||
            data[length - 1] != '\n')
            return refuse(err);
        const char *key = data + digits + 1;
        size_t rest = (size_t)length - digits - 2; // key, '=' and value
        const char *equals = memchr(key, '=', rest);
        if (!equals)
            return refuse(err);
        size_t key_size = (size_t)(equals - key);
        status = set_value(pax, key, key_size, equals + 1, rest - key_size - 1, err);
        data += length;
        size -= (size_t)length;
    }
    return status;
}

void conv_tar_pax_clear(struct conv_tar_pax *pax)
{
    free(pax->name);
    free(pax->link);
    free(pax->uname);
    free(pax->gname);
    conv_tar_sparse_free(&pax->sparse);
    *pax = (struct conv_tar_pax){0};
}

void conv_tar_pax_apply(const struct conv_tar_pax *pax, struct conv_archive_member *member)
{
    member->name = pax->name ? pax->name : member->name;
    member->link = pax->link ? pax->link : member->link;
    member->uname = pax->uname ? pax->uname : member->uname;
    member->gname = pax->gname ? pax->gname : member->gname;
    member->size = pax->has_size ? pax->size : member->size;
    member->uid = pax->has_uid ? pax->uid : member->uid;
    member->gid = pax->has_gid ? pax->gid : member->gid;
    member->mtime = pax->has_mtime ? pax->mtime : member->mtime;
}
