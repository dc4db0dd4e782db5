// SPDX-License-Identifier: MIT
// Scans the JSON header once, without a tree: an object of tensors, each an object with dtype,
// shape and data_offsets, and __metadata__, which is skipped.
#include "tensor/tensor_formats.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "tensor/element.h"
#include "tensor/json_scan.h"

#define MOST_NEAR 3  // names in a message
#define NEAR_NAME 64 // longer ones are not suggested

enum conv_status conv_safetensors_header_bytes(const uint8_t *head, size_t size,
                                               uint64_t file_bytes, size_t *header,
                                               struct conv_err *err)
{
    uint64_t length = 0;
    if (size < CONV_SAFETENSORS_HEAD)
        return conv_err_format(err, "is not a .safetensors file: it is too short");
    for (int i = 7; i >= 0; i--)
        length = length << 8 | head[i];
    if (length < 2 || length > file_bytes - CONV_SAFETENSORS_HEAD)
        return conv_err_format(err,
                               "is not a .safetensors file, or it is cut off: a header of %" PRIu64
                               " bytes does not fit into it",
                               length);
    if (length > CONV_SAFETENSORS_MOST_HEADER)
        return conv_err_limit(err,
                              "the .safetensors header has %" PRIu64 " bytes; at most %d are read",
                              length, CONV_SAFETENSORS_MOST_HEADER);
    *header = (size_t)length;
    return CONV_OK;
}

// --- tensors -------------------------------------------------------------------------------------

struct entry {
    char type[16];
    struct conv_tensor_shape shape;
    uint64_t begin, end; // among the data
    bool has_type, has_shape, has_offsets, has_many_axes;
};

static bool take_shape(struct conv_json_scan *json, struct entry *entry)
{
    uint64_t sides[64];
    int count;
    if (!conv_json_scan_numbers(json, sides, 64, &count))
        return false;
    entry->has_many_axes = count > CONV_TENSOR_MOST_AXES;
    entry->shape.axes = entry->has_many_axes ? 0 : count;
    for (int i = 0; i < entry->shape.axes; i++)
        entry->shape.side[i] = (int64_t)sides[i];
    return true;
}

static bool take_field(struct conv_json_scan *json, struct entry *entry)
{
    char key[16];
    uint64_t offsets[2];
    int count;
    if (!conv_json_scan_string(json, key, sizeof key) || !conv_json_scan_char(json, ':'))
        return false;
    if (strcmp(key, "dtype") == 0 && !entry->has_type) {
        entry->has_type = true;
        return conv_json_scan_string(json, entry->type, sizeof entry->type);
    }
    if (strcmp(key, "shape") == 0 && !entry->has_shape) {
        entry->has_shape = true;
        return take_shape(json, entry);
    }
    if (strcmp(key, "data_offsets") == 0 && !entry->has_offsets) {
        entry->has_offsets = true;
        if (!conv_json_scan_numbers(json, offsets, 2, &count) || count != 2)
            return false;
        entry->begin = offsets[0];
        entry->end = offsets[1];
        return true;
    }
    return false;
}

static bool take_entry(struct conv_json_scan *json, struct entry *entry)
{
    *entry = (struct entry){0};
    if (!conv_json_scan_char(json, '{'))
        return false;
    do {
        if (!take_field(json, entry))
            return false;
    } while (conv_json_scan_char(json, ','));
    return conv_json_scan_char(json, '}') && entry->has_type && entry->has_shape &&
           entry->has_offsets && entry->begin <= entry->end;
}

size_t conv_safetensors_element(enum conv_safetensors_type type)
{
    return type == CONV_SAFETENSORS_F32 ? 4 : 2;
}

static enum conv_status use_entry(struct conv_safetensors *found, const struct entry *entry,
                                  const char *name, size_t size, uint64_t file_bytes,
                                  struct conv_err *err)
{
    static const char *const types[] = {"F32", "F16", "BF16"};
    uint64_t data = CONV_SAFETENSORS_HEAD + (uint64_t)size;
    int type = 0;
    if (entry->has_many_axes)
        return conv_err_limit(err, "the tensor %s has more than %d axes", name,
                              CONV_TENSOR_MOST_AXES);
    while (type < 3 && strcmp(entry->type, types[type]) != 0)
        type++;
    if (type == 3)
        return conv_err_unsupported(err, "the tensor %s is of type %s; F32, F16 and BF16 are read",
                                    name, entry->type);
    found->type = (enum conv_safetensors_type)type;
    found->shape = entry->shape;
    found->offset = data + entry->begin;
    if (!conv_tensor_shape_bytes(&entry->shape, conv_safetensors_element(found->type),
                                 &found->bytes) ||
        found->bytes != entry->end - entry->begin)
        return conv_err_format(err, "the size of tensor %s does not match its shape", name);
    if (entry->end > file_bytes - data)
        return conv_err_format(err, "the data of the tensor %s end after the file: it is cut off",
                               name);
    return CONV_OK;
}

// --- names for the message -----------------------------------------------------------------------

struct names {
    char near[MOST_NEAR + 1][NEAR_NAME]; // the best so far, and a place for the next one
    size_t near_count;
    char first[MOST_NEAR][NEAR_NAME];
    size_t count; // of all tensors
};

// True if name ends in ".word".
static bool ends_in(const char *name, const char *word)
{
    size_t length = strlen(name), tail = strlen(word);
    return tail > 0 && length > tail && name[length - tail - 1] == '.' &&
           strcmp(name + length - tail, word) == 0;
}

static void add_name(struct names *names, const char *name, const char *word)
{
    const char *candidates[MOST_NEAR + 1], *near[MOST_NEAR];
    char kept[MOST_NEAR][NEAR_NAME];
    if (names->count++ < MOST_NEAR)
        snprintf(names->first[names->count - 1], NEAR_NAME, "%.*s", NEAR_NAME - 1, name);
    if (strlen(name) >= NEAR_NAME)
        return;
    if (ends_in(name, word)) {
        if (names->near_count < MOST_NEAR)
            strcpy(names->near[names->near_count++], name);
        return;
    }
    strcpy(names->near[names->near_count], name);
    for (size_t i = 0; i <= names->near_count; i++)
        candidates[i] = names->near[i];
    size_t found = conv_suggest_all(near, MOST_NEAR, word, candidates, sizeof candidates[0],
                                    names->near_count + 1);
    for (size_t i = 0; i < found; i++)
        strcpy(kept[i], near[i]);
    bool is_near = false;
    for (size_t i = 0; i < found; i++)
        is_near = is_near || strcmp(kept[i], name) == 0;
    if (!is_near)
        return;
    names->near_count = found;
    for (size_t i = 0; i < found; i++)
        strcpy(names->near[i], kept[i]);
}

static enum conv_status refuse_name(const struct names *names, const char *word,
                                    struct conv_err *err)
{
    char list[MOST_NEAR * (NEAR_NAME + 8)] = "";
    size_t shown = names->near_count          ? names->near_count
                   : names->count < MOST_NEAR ? names->count
                                              : MOST_NEAR;
    if (names->count == 0)
        return conv_err_usage(err, "has no tensor '%.64s', nor any other", word);
    for (size_t i = 0; i < shown; i++)
        conv_text_add(list, sizeof list, ", ", "'%s'",
                      names->near_count ? names->near[i] : names->first[i]);
    if (names->near_count)
        return conv_err_usage(err, "has no tensor '%.64s'; did you mean %s?", word, list);
    return conv_err_usage(err, "has no tensor '%.64s'; there %s %zu: %s%s", word,
                          names->count == 1 ? "is" : "are", names->count, list,
                          names->count > shown ? ", ..." : "");
}

enum conv_status conv_safetensors_find(struct conv_safetensors *found, const char *text,
                                       size_t size, uint64_t file_bytes, const char *name,
                                       struct conv_err *err)
{
    struct conv_json_scan json = {text, text + size};
    struct names names = {0};
    struct entry entry, wanted;
    char key[CONV_SAFETENSORS_MOST_NAME];
    bool is_found = false, good = conv_json_scan_char(&json, '{');
    if (good && !conv_json_scan_char(&json, '}')) {
        do {
            good = conv_json_scan_string(&json, key, sizeof key) && conv_json_scan_char(&json, ':');
            if (good && strcmp(key, "__metadata__") == 0) {
                good = conv_json_scan_skip(&json);
                continue;
            }
            good = good && take_entry(&json, &entry);
            if (!good)
                break;
            bool is_wanted = strcmp(key, name) == 0;
            good = !(is_wanted && is_found);
            if (is_wanted)
                wanted = entry;
            is_found = is_found || is_wanted;
            add_name(&names, key, name);
        } while (good && conv_json_scan_char(&json, ','));
        good = good && conv_json_scan_char(&json, '}');
    }
    conv_json_scan_space(&json);
    if (!good || json.at != json.end)
        return conv_err_format(err, "the .safetensors header is damaged at byte %td",
                               json.at - text);
    return is_found ? use_entry(found, &wanted, name, size, file_bytes, err)
                    : refuse_name(&names, name, err);
}

void conv_safetensors_convert(float *dst, const uint8_t *src, enum conv_safetensors_type type,
                              size_t count)
{
    size_t element = conv_safetensors_element(type);
    for (size_t i = 0; i < count; i++, src += element) {
        uint32_t bits = 0;
        for (size_t j = 0; j < element; j++)
            bits |= (uint32_t)src[j] << 8 * j;
        if (type == CONV_SAFETENSORS_F16) {
            dst[i] = conv_half_to_float((uint16_t)bits);
            continue;
        }
        if (type == CONV_SAFETENSORS_BF16)
            bits <<= 16;
        memcpy(&dst[i], &bits, sizeof bits);
    }
}
