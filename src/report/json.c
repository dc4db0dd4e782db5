// SPDX-License-Identifier: MIT
#include "report/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/json_scan.h"

// --- texts ---------------------------------------------------------------------------------------

// The code of the character at s if it must not reach a terminal: a control character beyond ASCII
// (C1), the end of a line or paragraph, at which Python's splitlines() cuts JSON Lines, or a mark
// that reverses the direction of text. Else 0.
static unsigned hidden_code(const unsigned char *s, size_t length)
{
    if (length == 2 && s[0] == 0xC2 && s[1] < 0xA0)
        return s[1];
    if (length != 3 || s[0] != 0xE2)
        return 0;
    unsigned code = 0x2000u | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    bool hidden = (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return hidden ? code : 0;
}

static size_t put(char *dst, const char *text)
{
    size_t size = strlen(text);
    memcpy(dst, text, size);
    return size;
}

// Copies a character that needs no translation. 0 if it needs one.
static size_t copy_plain(char *dst, const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    if (*s < 0x20 || *s == 0x7F || *s == '"' || *s == '\\' || *s == '<')
        return 0;
    size_t length = conv_text_utf8(s, SIZE_MAX);
    if (hidden_code(s, length))
        return 0;
    memcpy(dst, *text, length);
    *text += length;
    return length;
}

// Skips a character that copy_plain refused: ASCII, hidden, or a byte of invalid UTF-8, which
// counts as U+FFFD. Returns its code.
static unsigned take_rest(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    size_t length = conv_text_utf8(s, SIZE_MAX);
    *text += length > 0 ? length : 1;
    return length == 0 ? 0xFFFD : length == 1 ? *s : hidden_code(s, length);
}

size_t conv_text_json_unit(char *dst, const char **text)
{
    static const char digits[] = "0123456789abcdef";
    size_t size = copy_plain(dst, text);
    if (size > 0)
        return size;
    unsigned code = take_rest(text);
    if (code < 0x20 || code >= 0x7F || code == '<') { // JSON inside HTML must not end its script
        char escape[] = {'\\',
                         'u',
                         digits[code >> 12 & 15],
                         digits[code >> 8 & 15],
                         digits[code >> 4 & 15],
                         digits[code & 15],
                         0};
        return put(dst, escape);
    }
    size = code == '"' || code == '\\' ? put(dst, "\\") : 0;
    dst[size] = (char)code;
    return size + 1;
}

void conv_text_terminal(FILE *stream, const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t length = conv_text_utf8(s, SIZE_MAX);
        if (length == 0 || *s < 0x20 || *s == 0x7F || hidden_code(s, length)) {
            fprintf(stream, "\\x%02x", *s);
            length = 1;
        } else if (*s == '\\') {
            fputs("\\\\", stream);
        } else {
            fwrite(s, 1, length, stream);
        }
        s += length;
    }
}

// --- writing -------------------------------------------------------------------------------------

void conv_json_string(FILE *stream, const char *text)
{
    if (!text) {
        fputs("null", stream);
        return;
    }
    fputc('"', stream);
    char bytes[CONV_TEXT_UNIT];
    while (*text)
        fwrite(bytes, 1, conv_text_json_unit(bytes, &text), stream);
    fputc('"', stream);
}

void conv_json_member(FILE *stream, const char *name, const char *value)
{
    fprintf(stream, ",\"%s\":", name);
    conv_json_string(stream, value);
}

static void print_stages(FILE *stream, const uint64_t *ns)
{
    fputs(",\"ms\":{", stream);
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        fprintf(stream, "%s\"%s\":%.4f", s ? "," : "", conv_record_stage_name((enum conv_stage)s),
                (double)ns[s] / 1e6);
    fputc('}', stream);
}

void conv_json_figures(FILE *stream, const struct conv_figures *figures)
{
    fprintf(stream, ",\"images_per_s\":%.6f,\"mpix_per_s\":%.6f,\"busy\":{", figures->images_per_s,
            figures->mpix_per_s);
    for (int s = 0; s < CONV_STAGE_COUNT; s++)
        fprintf(stream, "%s\"%s\":%.6f", s ? "," : "", conv_record_stage_name((enum conv_stage)s),
                figures->busy[s]);
    fprintf(stream, "},\"waiting\":%.6f,\"cores\":%d,\"cpu_utilisation\":%.6f,\"overlap\":",
            figures->waiting, figures->cores, figures->cpu_utilisation);
    if (figures->overlap_two < 0)
        fputs("null", stream);
    else
        fprintf(stream, "{\"two\":%.6f,\"three\":%.6f}", figures->overlap_two,
                figures->overlap_three);
}

void conv_json_begin(FILE *stream, const struct conv_report_config *config)
{
    fputs("{\"type\":\"begin\",\"schema\":1,\"version\":\"" CONV_VERSION "\"", stream);
    conv_json_member(stream, "filter", config->filters);
    conv_json_member(stream, "device", config->device);
    fprintf(stream, ",\"jobs\":%d,\"streams\":", config->jobs);
    if (config->device_async)
        fprintf(stream, "%d", config->streams);
    else
        fputs("null", stream);
    fprintf(stream, ",\"dry_run\":%s", config->dry_run ? "true" : "false");
    if (config->shard.count)
        fprintf(stream, ",\"shard\":{\"index\":%d,\"count\":%d,\"by\":\"%s\"}", config->shard.index,
                config->shard.count, config->shard.by);
    fputs("}\n", stream);
}

void conv_json_file(FILE *stream, const struct conv_record *record)
{
    static const char *const names[] = {"done", "failed", "skipped", "planned", "copied"};
    fputs("{\"type\":\"file\"", stream);
    conv_json_member(stream, "input", record->input);
    bool failed = record->outcome == CONV_OUTCOME_FAILED;
    conv_json_member(stream, "output", failed ? NULL : record->output);
    conv_json_member(stream, "status", names[record->outcome]);
    conv_json_member(stream, "error", failed ? record->reason : NULL);
    if (!failed && record->reason)
        conv_json_member(stream, "reason", record->reason);
    if (record->width > 0)
        fprintf(stream, ",\"width\":%d,\"height\":%d,\"channels\":%d,\"depth\":%d", record->width,
                record->height, record->channels, record->depth);
    fprintf(stream, ",\"bytes_in\":%zu,\"bytes_out\":%zu", record->bytes_in, record->bytes_out);
    print_stages(stream, record->ns);
    fputs("}\n", stream);
}

// Work of each device; null if the workers filter.
static void print_devices(FILE *stream, const struct conv_report_config *config,
                          const struct conv_totals *totals)
{
    static const char *const engines[CONV_ENGINE_COUNT] = {"copy_in", "kernel", "copy_out"};
    double share, run = totals->seconds > 0 ? totals->seconds * 1e9 : 1;
    char name[16];
    int i = 0;
    for (; conv_figures_device(config, totals, i, name, &share); i++) {
        const struct conv_device_totals *did = &totals->devices[i];
        fputs(i ? ",{" : ",\"devices\":[{", stream);
        fputs("\"name\":", stream);
        conv_json_string(stream, name);
        fprintf(stream, ",\"images\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"share\":%.6f", did->images,
                did->bytes, share);
        for (int e = 0; e < CONV_ENGINE_COUNT; e++)
            fprintf(stream, "%s\"%s\":%.6f", e ? "," : ",\"busy\":{", engines[e],
                    (double)did->overlap.engine[e] / run);
        fputs("}}", stream);
    }
    fputs(i ? "]" : ",\"devices\":null", stream);
}

void conv_json_summary(FILE *stream, const struct conv_report_config *config,
                       const struct conv_totals *totals, int exit_code)
{
    fprintf(stream,
            "{\"type\":\"summary\",\"exit_code\":%d,\"done\":%" PRIu64 ",\"failed\":%" PRIu64
            ",\"skipped\":%" PRIu64 ",\"planned\":%" PRIu64 ",\"ignored\":%" PRIu64
            ",\"copied\":%" PRIu64 ",\"seconds\":%.6f,\"pixels\":%" PRIu64 ",\"bytes_in\":%" PRIu64
            ",\"bytes_out\":%" PRIu64 ",\"other_images\":%" PRIu64
            ",\"folders_not_entered\":%" PRIu64 ",\"decoded_on_device\":%" PRIu64
            ",\"encoded_on_device\":%" PRIu64 ",\"replaced\":%" PRIu64,
            exit_code, totals->done, totals->failed, totals->skipped, totals->planned,
            totals->passed.ignored + totals->passed.images, totals->copied, totals->seconds,
            totals->pixels, totals->bytes_in, totals->bytes_out, totals->passed.images,
            totals->passed.folders, totals->decoded_on_device, totals->encoded_on_device,
            totals->replaced);
    conv_json_member(stream, "other_formats",
                     totals->passed.formats[0] ? totals->passed.formats : NULL);
    print_stages(stream, totals->ns);
    struct conv_figures figures;
    conv_figures_compute(config, totals, &figures);
    conv_json_figures(stream, &figures);
    fprintf(stream, ",\"start_seconds\":%.6f", figures.start_seconds);
    conv_json_member(stream, "limit", figures.limit);
    conv_json_member(stream, "next_limit", figures.next_limit);
    print_devices(stream, config, totals);
    if (totals->listing.digest[0])
        fprintf(stream, ",\"listing\":{\"images\":%" PRIu64 ",\"digest\":\"%s\"}",
                totals->listing.images, totals->listing.digest);
    fputs("}\n", stream);
}

// --- reading -------------------------------------------------------------------------------------

static struct conv_json_scan scan_of(const char *text)
{
    return (struct conv_json_scan){text, text + strlen(text)};
}

const char *conv_json_skip(const char *text)
{
    struct conv_json_scan scan = scan_of(text);
    return conv_json_scan_skip(&scan) ? scan.at : NULL;
}

bool conv_json_read(struct conv_json_value *value, const char *text, const char *name)
{
    struct conv_json_scan scan = scan_of(text);
    char key[64];
    if (!conv_json_scan_char(&scan, '{'))
        return false;
    do {
        if (!conv_json_scan_string(&scan, key, sizeof key) || !conv_json_scan_char(&scan, ':'))
            return false;
        conv_json_scan_space(&scan);
        value->text = scan.at;
        if (!conv_json_scan_skip(&scan))
            return false;
        value->size = (size_t)(scan.at - value->text);
        if (strcmp(key, name) == 0)
            return true;
    } while (conv_json_scan_char(&scan, ','));
    return false;
}

bool conv_json_is_object(const char *text)
{
    struct conv_json_scan scan = scan_of(text);
    conv_json_scan_space(&scan);
    bool good = *scan.at == '{' && conv_json_scan_skip(&scan);
    conv_json_scan_space(&scan);
    return good && scan.at == scan.end;
}

bool conv_json_integer(const struct conv_json_value *value, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < value->size; i++) {
        unsigned digit = (unsigned)value->text[i] - '0';
        if (digit > 9 || *number > (UINT64_MAX - digit) / 10)
            return false;
        *number = 10 * *number + digit;
    }
    return value->size > 0;
}

bool conv_json_number(const struct conv_json_value *value, double *number)
{
    char *end;
    *number = strtod(value->text, &end); // the line is terminated
    return value->size > 0 && end == value->text + value->size;
}

bool conv_json_text(const struct conv_json_value *value, char *text, size_t size)
{
    struct conv_json_scan scan = {value->text, value->text + value->size};
    return conv_json_scan_string(&scan, text, size) && scan.at == scan.end &&
           (text[0] || value->size == 2); // else it did not fit
}
