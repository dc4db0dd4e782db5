// SPDX-License-Identifier: MIT
// Shared by merge.c and merge_images.c.
#ifndef CONV_REPORT_MERGE_INTERNAL_H
#define CONV_REPORT_MERGE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/err.h"
#include "report/json.h"
#include "report/merge.h"
#include "report/record.h"

// --- images --------------------------------------------------------------------------------------

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

// --- lines ---------------------------------------------------------------------------------------
// Reads from a line of a report what merging needs. Lines are terminated strings.

#define CONV_MERGE_LINE_NAME (6 * 4096) // of an image: each byte of a path may be an escape

enum conv_merge_record {
    CONV_MERGE_RECORD_BEGIN,
    CONV_MERGE_RECORD_FILE,
    CONV_MERGE_RECORD_SUMMARY,
    CONV_MERGE_RECORD_NONE,
};

// The type of a record.
enum conv_merge_record conv_merge_line_record(const char *line);

// A member of an object, which may be inside a line: 0 if it is not a number; false if it is not a
// text or longer than size - 1 bytes.
uint64_t conv_merge_line_integer(const char *object, const char *name);
bool conv_merge_line_text(char *text, size_t size, const char *object, const char *name);

// The status of a file record. *known: it has one.
enum conv_merge_state conv_merge_line_state(const char *line, bool *known);

// The input of a file record as it stands in the line, escapes included (all reports escape alike),
// and its digest. False if it has none.
bool conv_merge_line_name(struct conv_digest *digest, struct conv_json_value *name,
                          const char *line);

// --- reports -------------------------------------------------------------------------------------
// Shared by merge.c and merge_write.c.

// One report, of one run.
struct conv_merge_report {
    const char *path;
    dev_t device;
    ino_t inode;
    int shard;        // -1: the run is no shard
    bool is_finished; // the run came to its end
    double seconds;
    struct conv_record_listing listing;
};

struct conv_merge {
    struct conv_merge_report *reports;
    int count, capacity;
    int shards;                      // 0: none so far
    struct conv_merge_report **last; // the last report of each shard; NULL: none
    bool *finished;                  // shards of which any run came to its end
    char filter[4096];               // of all reports
    struct conv_merge_table images;
    struct conv_merge_totals totals;
};

#endif
