// SPDX-License-Identifier: MIT
#include "report/merge_line.h"

#include <string.h>

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
