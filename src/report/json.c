// SPDX-License-Identifier: MIT
#include "report/json.h"

#include <inttypes.h>
#include <string.h>

// Length of the well-formed UTF-8 sequence at s (RFC 3629), 0 if there is none.
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    int length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0; // overlong, surrogate, beyond U+10FFFF
    return length;
}

void conv_json_string(FILE *stream, const char *text)
{
    fputc('"', stream);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int length = utf8_length(s);
        if (length == 0) {
            fputs("\\ufffd", stream);
            s++;
        } else if (length > 1) {
            fwrite(s, 1, (size_t)length, stream);
            s += length;
        } else {
            if (*s == '"' || *s == '\\')
                fprintf(stream, "\\%c", *s);
            else if (*s < 0x20 || *s == 0x7F)
                fprintf(stream, "\\u%04x", *s);
            else
                fputc(*s, stream);
            s++;
        }
    }
    fputc('"', stream);
}

static void print_member(FILE *stream, const char *name, const char *value)
{
    fprintf(stream, ",\"%s\":", name);
    if (value)
        conv_json_string(stream, value);
    else
        fputs("null", stream);
}

static void print_stages(FILE *stream, const uint64_t *ns)
{
    fputs(",\"ms\":{", stream);
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        fprintf(stream, "%s\"%s\":%.4f", s ? "," : "", conv_report_stage_name((enum conv_stage)s),
                (double)ns[s] / 1e6);
    fputc('}', stream);
}

void conv_json_begin(FILE *stream, const struct conv_report_config *config)
{
    fputs("{\"type\":\"begin\",\"version\":\"" CONV_VERSION "\"", stream);
    print_member(stream, "filter", config->filters);
    print_member(stream, "device", config->device);
    fprintf(stream, ",\"jobs\":%d,\"streams\":%d,\"dry_run\":%s}\n", config->jobs, config->streams,
            config->dry_run ? "true" : "false");
}

void conv_json_file(FILE *stream, const struct conv_record *record)
{
    static const char *const names[] = {"done", "failed", "skipped", "planned"};
    fputs("{\"type\":\"file\"", stream);
    print_member(stream, "input", record->input);
    print_member(stream, "output", record->output);
    print_member(stream, "status", names[record->outcome]);
    bool failed = record->outcome == CONV_OUTCOME_FAILED;
    print_member(stream, "error", failed ? record->reason : NULL);
    if (!failed && record->reason)
        print_member(stream, "reason", record->reason);
    if (record->width > 0)
        fprintf(stream, ",\"width\":%d,\"height\":%d,\"channels\":%d,\"depth\":%d", record->width,
                record->height, record->channels, record->depth);
    fprintf(stream, ",\"bytes_in\":%zu,\"bytes_out\":%zu", record->bytes_in, record->bytes_out);
    print_stages(stream, record->ns);
    fputs("}\n", stream);
}

void conv_json_end(FILE *stream, int exit_code)
{
    fprintf(stream, "{\"type\":\"end\",\"exit_code\":%d}\n", exit_code);
}

void conv_json_summary(FILE *stream, const struct conv_report_config *config,
                       const struct conv_totals *totals)
{
    fprintf(stream,
            "{\"type\":\"summary\",\"done\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"skipped\":%" PRIu64
            ",\"planned\":%" PRIu64 ",\"seconds\":%.6f,\"pixels\":%" PRIu64 ",\"bytes_in\":%" PRIu64
            ",\"bytes_out\":%" PRIu64,
            totals->done, totals->failed, totals->skipped, totals->planned, totals->seconds,
            totals->pixels, totals->bytes_in, totals->bytes_out);
    print_stages(stream, totals->ns);
    enum conv_stage limit =
        conv_report_limit(totals, config->device_async, config->jobs, config->streams);
    print_member(stream, "limit", totals->done ? conv_report_stage_name(limit) : NULL);
    fputs("}\n", stream);
}
