// SPDX-License-Identifier: MIT
#include "report/held.h"

#include <stdlib.h>
#include <string.h>

struct conv_held_record {
    struct conv_held_record *next;
    struct conv_record record;
    char names[]; // input and output
};

static struct conv_held_record *copy_record(const struct conv_record *record)
{
    const char *output = record->output ? record->output : "";
    size_t input_size = strlen(record->input) + 1, output_size = strlen(output) + 1;
    struct conv_held_record *copy = malloc(sizeof *copy + input_size + output_size);
    if (!copy)
        return NULL;
    copy->next = NULL;
    copy->record = *record;
    copy->record.input = memcpy(copy->names, record->input, input_size);
    memcpy(copy->names + input_size, output, output_size);
    if (record->output)
        copy->record.output = copy->names + input_size;
    return copy;
}

static struct conv_held_archive *find(struct conv_held *held, int number)
{
    struct conv_held_archive **place = &held->first;
    while (*place && (*place)->archive != number)
        place = &(*place)->next;
    if (!*place && (*place = calloc(1, sizeof **place))) {
        (*place)->archive = number;
        (*place)->end = &(*place)->first;
    }
    return *place;
}

bool conv_held_add(struct conv_held *held, const struct conv_record *record, uint64_t elapsed,
                   bool whole)
{
    struct conv_held_archive *archive = find(held, record->archive);
    struct conv_held_record *copy = archive && whole ? copy_record(record) : NULL;
    if (!archive || (whole && !copy))
        return false;
    conv_held_count(&archive->totals, record, elapsed);
    if (copy) {
        *archive->end = copy;
        archive->end = &copy->next;
    }
    return true;
}

struct conv_held_archive *conv_held_take(struct conv_held *held, int number)
{
    struct conv_held_archive **place = &held->first;
    while (*place && (*place)->archive != number)
        place = &(*place)->next;
    struct conv_held_archive *archive = *place;
    if (archive)
        *place = archive->next;
    return archive;
}

void conv_held_release(struct conv_held_archive *archive,
                       void (*use)(void *user, struct conv_record *record), void *user)
{
    for (struct conv_held_record *copy = archive ? archive->first : NULL, *next; copy;
         copy = next) {
        next = copy->next;
        use(user, &copy->record);
        free(copy);
    }
    free(archive);
}

void conv_held_count(struct conv_totals *totals, const struct conv_record *record, uint64_t elapsed)
{
    switch (record->outcome) {
    case CONV_OUTCOME_FAILED:
        totals->failed++;
        return;
    case CONV_OUTCOME_SKIPPED:
        totals->skipped++;
        return;
    case CONV_OUTCOME_PLANNED:
        totals->planned++;
        return;
    case CONV_OUTCOME_COPIED:
        totals->copied++;
        return;
    case CONV_OUTCOME_DONE:
        break;
    }
    totals->done++;
    totals->pixels += (uint64_t)record->width * (uint64_t)record->height;
    totals->bytes_in += record->bytes_in;
    totals->bytes_out += record->bytes_out;
    totals->decoded_on_device += record->decoded_on_device;
    totals->encoded_on_device += record->encoded_on_device;
    uint64_t own = 0;
    for (int s = 0; s < CONV_STAGE_COUNT; s++) {
        totals->ns[s] += record->ns[s];
        own += record->ns[s];
    }
    // An image that never waited would have begun when this time was over.
    double before = ((double)elapsed - (double)own) / 1e9;
    if (totals->done == 1 || before < totals->start_seconds)
        totals->start_seconds = before > 0 ? before : 0;
}

void conv_held_sum(struct conv_totals *totals, const struct conv_totals *more)
{
    if (more->done && (!totals->done || more->start_seconds < totals->start_seconds))
        totals->start_seconds = more->start_seconds;
    totals->done += more->done;
    totals->copied += more->copied;
    totals->failed += more->failed;
    totals->pixels += more->pixels;
    totals->bytes_in += more->bytes_in;
    totals->bytes_out += more->bytes_out;
    totals->decoded_on_device += more->decoded_on_device;
    totals->encoded_on_device += more->encoded_on_device;
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        totals->ns[s] += more->ns[s];
}
