// SPDX-License-Identifier: MIT
// The images of merged reports, and what merging needs of the lines about them.
#include "report/merge_internal.h"

#include <stdlib.h>
#include <string.h>

// --- images --------------------------------------------------------------------------------------

#define FIRST_CAPACITY 1024

static bool is_free(const struct conv_merge_image *image)
{
    return image->name.word[0] == 0 && image->name.word[1] == 0;
}

// The slot of the name, or the free slot where it belongs.
static struct conv_merge_image *find(const struct conv_merge_table *table,
                                     const struct conv_digest *name)
{
    size_t at = name->word[0] & (table->capacity - 1);
    for (;; at = (at + 1) & (table->capacity - 1)) {
        struct conv_merge_image *slot = &table->slots[at];
        if (is_free(slot) ||
            (slot->name.word[0] == name->word[0] && slot->name.word[1] == name->word[1]))
            return slot;
    }
}

static enum conv_status grow(struct conv_merge_table *table, struct conv_err *err)
{
    struct conv_merge_table old = *table;
    size_t capacity = old.capacity ? 2 * old.capacity : FIRST_CAPACITY;
    struct conv_merge_image *slots = calloc(capacity, sizeof *slots);
    if (!slots)
        return conv_err_set(err, CONV_ERR_MEMORY, "no memory for the names of %zu images",
                            capacity);
    table->slots = slots;
    table->capacity = capacity;
    for (size_t i = 0; i < old.capacity; i++)
        if (!is_free(&old.slots[i]))
            *find(table, &old.slots[i].name) = old.slots[i];
    free(old.slots);
    return CONV_OK;
}

void conv_merge_table_free(struct conv_merge_table *table)
{
    free(table->slots);
    *table = (struct conv_merge_table){0};
}

enum conv_status conv_merge_table_add(struct conv_merge_table *table,
                                      const struct conv_digest *name,
                                      struct conv_merge_image **image, bool *added,
                                      struct conv_err *err)
{
    if (4 * (table->count + 1) > 3 * table->capacity) {
        enum conv_status status = grow(table, err);
        if (status)
            return status;
    }
    *image = find(table, name);
    *added = is_free(*image);
    if (*added) {
        **image = (struct conv_merge_image){.name = *name};
        table->count++;
    }
    return CONV_OK;
}

struct conv_merge_image *conv_merge_table_find(const struct conv_merge_table *table,
                                               const struct conv_digest *name)
{
    struct conv_merge_image *image = table->capacity ? find(table, name) : NULL;
    return image && !is_free(image) ? image : NULL;
}

void conv_merge_table_count(const struct conv_merge_table *table,
                            uint64_t counts[CONV_MERGE_STATES])
{
    for (size_t i = 0; i < table->capacity; i++)
        if (!is_free(&table->slots[i]))
            counts[table->slots[i].state]++;
}

void conv_merge_table_forget_copies(struct conv_merge_table *table)
{
    for (size_t i = 0; i < table->capacity; i++)
        table->slots[i].copied = false;
}

// --- lines ---------------------------------------------------------------------------------------

static bool is_type(const struct conv_json_value *value, const char *type)
{
    size_t length = strlen(type);
    return value->size == length + 2 && memcmp(value->text + 1, type, length) == 0;
}

enum conv_merge_record conv_merge_line_record(const char *line)
{
    static const char *const types[] = {"begin", "file", "summary"};
    struct conv_json_value type;
    if (!conv_json_is_object(line) || !conv_json_read(&type, line, "type"))
        return CONV_MERGE_RECORD_NONE;
    for (int i = 0; i < 3; i++)
        if (is_type(&type, types[i]))
            return (enum conv_merge_record)i;
    return CONV_MERGE_RECORD_NONE;
}

uint64_t conv_merge_line_integer(const char *object, const char *name)
{
    struct conv_json_value value;
    uint64_t number;
    return conv_json_read(&value, object, name) && conv_json_integer(&value, &number) ? number : 0;
}

bool conv_merge_line_text(char *text, size_t size, const char *object, const char *name)
{
    struct conv_json_value value;
    return conv_json_read(&value, object, name) && conv_json_text(&value, text, size);
}

enum conv_merge_state conv_merge_line_state(const char *line, bool *known)
{
    static const char *const states[] = {"failed", "planned", "skipped", "copied", "done"};
    struct conv_json_value value;
    *known = false;
    for (int i = 0; conv_json_read(&value, line, "status") && i < CONV_MERGE_STATES; i++)
        if (is_type(&value, states[i])) {
            *known = true;
            return (enum conv_merge_state)i;
        }
    return CONV_MERGE_FAILED;
}

bool conv_merge_line_name(struct conv_digest *digest, struct conv_json_value *name,
                          const char *line)
{
    *digest = (struct conv_digest){0};
    if (!conv_json_read(name, line, "input") || name->size < 2 || name->size > CONV_MERGE_LINE_NAME)
        return false;
    conv_hash_add(digest, name->text, name->size);
    return true;
}
