// SPDX-License-Identifier: MIT
#include "report/timeline.h"

#include <stdlib.h>
#include <string.h>

// --- bins ----------------------------------------------------------------------------------------

#define FIRST_WIDTH ((uint64_t)1 << 14) // 16 us: 512 bins are 8 ms, shorter than any run

void conv_timeline_init(struct conv_timeline *timeline)
{
    memset(timeline, 0, sizeof *timeline);
    timeline->width = FIRST_WIDTH;
}

void conv_timeline_widen(struct conv_timeline *timeline, uint64_t width)
{
    while (timeline->width < width) {
        for (int i = 0; i < CONV_TIMELINE_BINS; i++)
            for (int s = 0; s < CONV_STAGE_COUNT; s++)
                timeline->ns[i][s] = i < CONV_TIMELINE_BINS / 2
                                         ? timeline->ns[2 * i][s] + timeline->ns[2 * i + 1][s]
                                         : 0;
        timeline->width *= 2;
    }
}

void conv_timeline_add(struct conv_timeline *timeline, enum conv_stage stage, uint64_t start,
                       uint64_t end)
{
    while (end > CONV_TIMELINE_BINS * timeline->width)
        conv_timeline_widen(timeline, 2 * timeline->width);
    while (start < end) {
        uint64_t bin = start / timeline->width, next = (bin + 1) * timeline->width;
        uint64_t until = end < next ? end : next;
        timeline->ns[bin][stage] += until - start;
        start = until;
    }
}

// --- slices --------------------------------------------------------------------------------------

// The array with room for at least `need` elements of `size` bytes; NULL: no memory, it is as it
// was.
static void *grow(void *array, size_t need, size_t size, size_t *room)
{
    size_t more = *room ? *room : 64;
    while (more < need)
        more *= 2;
    if (more == *room)
        return array;
    void *grown = realloc(array, more * size);
    if (grown)
        *room = more;
    return grown;
}

// A continuation byte of UTF-8 does not begin a character.
static const char *end_of(const char *name)
{
    size_t size = strlen(name);
    if (size < CONV_SLICES_NAME)
        return name;
    name += size - CONV_SLICES_NAME + 1;
    while ((*name & 0xC0) == 0x80)
        name++;
    return name;
}

// The offset of the name, which is often that of the slice before. False: there is no room.
static bool put_name(struct conv_slices *slices, const char *name, uint32_t *offset)
{
    name = end_of(name);
    if (slices->count > 0) {
        *offset = slices->list[slices->count - 1].text;
        if (strcmp(slices->text + *offset, name) == 0)
            return true;
    }
    size_t size = strlen(name) + 1;
    if (slices->text_size + size > CONV_SLICES_MOST_TEXT)
        return false;
    char *text = grow(slices->text, slices->text_size + size, 1, &slices->text_room);
    if (!text)
        return false;
    slices->text = text;
    *offset = (uint32_t)slices->text_size;
    memcpy(slices->text + slices->text_size, name, size);
    slices->text_size += size;
    return true;
}

static bool add(struct conv_slices *slices, struct conv_slice *slice, const char *name)
{
    if (slices->count == CONV_SLICES_MOST || !put_name(slices, name, &slice->text))
        return false;
    struct conv_slice *list =
        grow(slices->list, (size_t)slices->count + 1, sizeof *list, &slices->room);
    if (!list)
        return false;
    slices->list = list;
    list[slices->count++] = *slice;
    return true;
}

void conv_slices_add(struct conv_slices *slices, int stage, uint64_t start, uint64_t end,
                     const char *name)
{
    struct conv_slice slice = {.start = start, .end = end, .stage = (uint8_t)stage};
    if (slices->overflowed || add(slices, &slice, name))
        return;
    conv_slices_free(slices);
    slices->overflowed = true;
}

void conv_slices_free(struct conv_slices *slices)
{
    free(slices->list);
    free(slices->text);
    *slices = (struct conv_slices){0};
}
