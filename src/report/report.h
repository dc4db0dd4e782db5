// SPDX-License-Identifier: MIT
// What the user sees during a run: failures and the closing line on stderr, progress on a terminal,
// JSON Lines if requested. All calls on one report must come one at a time.
#pragma once

#include "base/err.h"
#include "report/record.h"

struct conv_report;

// Prints the begin record. `config` is copied; its strings must outlive the report. CONV_ERR_USAGE
// if the file of --report cannot be opened, CONV_ERR_MEMORY.
enum conv_status conv_report_open(struct conv_report **report,
                                  const struct conv_report_config *config, struct conv_err *err);

// Counts the record and prints what is due. The record may be freed afterwards.
void conv_report_file(struct conv_report *report, const struct conv_record *record);

// There will be no record of that number.
void conv_report_pass(struct conv_report *report, uint64_t number);

// The number of an archive (record.archive) whose records are held; 0 if none are.
int conv_report_held(const struct conv_report *report);

enum conv_report_fate {
    CONV_REPORT_KEPT,      // the archive is complete: its records are done or copied
    CONV_REPORT_LOST,      // it could not be written: they have failed
    CONV_REPORT_FORGOTTEN, // a signal came before: they count as not begun
};

// Counts and shows the records that were held. `failure`: why the archive is lost, or NULL.
void conv_report_settle(struct conv_report *report, int archive, enum conv_report_fate fate,
                        const struct conv_err *failure);

// A group, or a part of one, that passed through a stream: from `start` on (conv_clock_ns) it was
// copied in, filtered and copied out without a pause.
struct conv_report_work {
    int device;     // that filtered it; device_count: the fallback backend
    int engines_of; // the device that owns the stream; a fallback's work counts as its kernel time
    int images;     // that begin in it
    size_t bytes;
    uint64_t start, ns[CONV_ENGINE_COUNT];
};

// Adds the group to the totals and to the overlap of its device's engines.
void conv_report_group(struct conv_report *report, const struct conv_report_work *work);

// A device has more streams now than the configuration says.
void conv_report_streams(struct conv_report *report, int streams);
// The most that one device has had, or the configuration's number.
int conv_report_most_streams(const struct conv_report *report);

// False: conv_report_tick does nothing. Any thread, at any time.
bool conv_report_has_progress(const struct conv_report *report);

// To be called several times a second, so that the progress is drawn even while no image is
// finished.
void conv_report_tick(struct conv_report *report);

// A warning on stderr, in one line: something went wrong and was corrected.
void conv_report_warn(struct conv_report *report, const char *text);

// Everything counted so far, and the seconds until this call: the last one is for the summary, too.
// The caller sets what the source passed over, and in a run of one shard the images of all shards.
struct conv_totals *conv_report_totals(struct conv_report *report);

// The work that a signal left undone, for the closing line.
struct conv_report_rest {
    bool known;         // `images` is the whole rest
    uint64_t images;    // neither done, failed nor skipped
    const char *advice; // how to continue, constant; or NULL
};

// To be called before conv_report_close.
void conv_report_interrupted(struct conv_report *report, const struct conv_report_rest *rest);

// After conv_report_totals: writes the JSON summary, of which `exit_code` is a part. CONV_ERR_IO if
// the JSON could not be written completely.
enum conv_status conv_report_summarize(struct conv_report *report, int exit_code,
                                       struct conv_err *err);

// Prints the closing line, after all other messages, and frees the report.
void conv_report_end(struct conv_report *report);

// All three.
enum conv_status conv_report_close(struct conv_report *report, int exit_code,
                                   struct conv_totals *totals, struct conv_err *err);

// A message on stderr in one line, after "conv: ", escaped by conv_text_terminal. Any thread.
void conv_report_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
