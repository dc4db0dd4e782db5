// SPDX-License-Identifier: MIT
// The images of merged reports, by digests of their names.
#ifndef CONV_REPORT_MERGE_TABLE_H
#define CONV_REPORT_MERGE_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/hash.h"

// From the worst to the best.
enum conv_merge_state {
    CONV_MERGE_FAILED,
    CONV_MERGE_PLANNED,
    CONV_MERGE_SKIPPED,
    CONV_MERGE_COPIED, // a member of an archive that is not an image, or failed, copied unchanged
    CONV_MERGE_DONE,
    CONV_MERGE_STATES,
};

struct conv_merge_image {
    struct conv_digest name; // 0: a free slot
    int report;              // with its best record
    enum conv_merge_state state : 8;
    bool overlaps, copied;
};

// {0} is an empty table. Nobody is expected to forge reports so that digests of names collide, so
// slots depend on the digests alone.
struct conv_merge_table {
    struct conv_merge_image *slots; // open addressing
    size_t count, capacity;         // capacity: a power of two, or 0
};

// Leaves {0}.
void conv_merge_table_free(struct conv_merge_table *table);

// The image of that name; *added: it is new, with nothing but its name. It moves with the next
// call. CONV_ERR_MEMORY.
enum conv_status conv_merge_table_add(struct conv_merge_table *table,
                                      const struct conv_digest *name,
                                      struct conv_merge_image **image, bool *added,
                                      struct conv_err *err);

// NULL if no image has that name.
struct conv_merge_image *conv_merge_table_find(const struct conv_merge_table *table,
                                               const struct conv_digest *name);

// Adds the number of images in each state to counts[].
void conv_merge_table_count(const struct conv_merge_table *table,
                            uint64_t counts[CONV_MERGE_STATES]);

// Removes the state CONV_MERGE_COPIED from all images.
void conv_merge_table_forget_copies(struct conv_merge_table *table);

#endif
