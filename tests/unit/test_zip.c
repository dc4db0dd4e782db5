// SPDX-License-Identifier: MIT
// Zip files (src/io/archive/zip.h): written records can be found and read again, also for sizes
// above 4 GiB and more than 65,535 entries, which no quick test can write in full.
#include <stdio.h>

#include "io/archive/zip.h"
#include "support/unit.h"

static const uint64_t gib = (uint64_t)1 << 30;

static struct conv_zip_entry make_entry(const char *name)
{
    return (struct conv_zip_entry){
        .name = name,
        .name_size = strlen(name),
        .mode = 0100644,
        .mtime = 1700000001,
        .crc = 0x12345678,
    };
}

// A directory that begins at offset 0, with its end. malloc'ed.
static uint8_t *take_all(struct conv_zip_directory *directory, size_t *size)
{
    uint8_t *all = malloc((size_t)directory->size + CONV_ZIP_END_MOST);
    const uint8_t *part;
    ptrdiff_t got;
    *size = 0;
    assert_non_null(all);
    while ((got = conv_zip_directory_take(directory, &part, NULL)) > 0) {
        assert_true(*size + (size_t)got <= directory->size);
        memcpy(all + *size, part, (size_t)got);
        *size += (size_t)got;
    }
    assert_int_equal(got, 0);
    assert_int_equal(*size, directory->size);
    *size += conv_zip_directory_end(all + *size, directory, 0);
    return all;
}

// `mtime`: the time that is read, which may be another one.
static void check_round_trip(const struct conv_zip_entry *entry, time_t mtime)
{
    struct conv_zip_directory directory = {0};
    struct conv_zip_record record;
    uint64_t at = 0;
    size_t size;
    assert_ok(conv_zip_directory_add(&directory, entry, NULL));
    uint8_t *all = take_all(&directory, &size);
    const struct conv_zip_file file = {.data = all, .size = size, .end = directory.size};
    assert_true(conv_zip_record_next(&file, &at, &record));
    assert_int_equal(record.name_size, entry->name_size);
    assert_memory_equal(record.name, entry->name, entry->name_size);
    assert_int_equal(record.mode, entry->mode);
    assert_int_equal(record.crc, entry->crc);
    assert_true(record.size == entry->size && record.packed == entry->packed);
    assert_true(record.offset == entry->offset);
    if (record.mtime != mtime)
        fail_msg("%lld: %lld", (long long)entry->mtime, (long long)record.mtime);
    assert_false(conv_zip_record_next(&file, &at, &record));
    free(all);
    conv_zip_directory_free(&directory);
}

UNIT_TEST(test_records)
{
    static const uint64_t sizes[] = {0, 1, 65535, 0xFFFFFFFE, 0xFFFFFFFF, 0x100000000};
    for (int i = 0; i < 6 * 6 * 6; i++) {
        struct conv_zip_entry entry = make_entry(i % 2 ? "a.png" : "d/\xC3\xA4.png");
        entry.size = sizes[i % 6];
        entry.packed = sizes[i / 6 % 6];
        entry.offset = sizes[i / 36];
        check_round_trip(&entry, entry.mtime);
    }
}

// Times that 32 bits or the years from 1980 to 2107 cannot hold are cut off, not wrapped.
UNIT_TEST(test_times)
{
    static const struct {
        time_t mtime, read;
    } times[] = {
        {0, 0},
        {-1, -1},
        {INT32_MAX, INT32_MAX},
        {INT32_MIN, INT32_MIN},
        {(time_t)INT32_MAX + 1, (time_t)INT32_MAX + 1}, // the DOS time has even seconds
        {(time_t)4354819198, (time_t)4354819198},       // the end of 2107
        {(time_t)4354819200, (time_t)4354819198},       // the year 2108
        {(time_t)1 << 60, (time_t)4354819198},          // no year
        {-((time_t)1 << 60), (time_t)315532800},        // 1980
        {(time_t)INT32_MIN - 1, (time_t)315532800},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct conv_zip_entry entry = make_entry("a");
        entry.mtime = times[i].mtime;
        check_round_trip(&entry, times[i].read);
    }
}

// 70,000 entries do not fit into 16 bits nor into the buffer: some go through a temporary file.
UNIT_TEST(test_many_entries)
{
    struct conv_zip_directory directory = {0};
    struct conv_zip_record record;
    const uint64_t count = 70000;
    char name[32];
    for (uint64_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%llu.png", (unsigned long long)i);
        struct conv_zip_entry entry = make_entry(name);
        entry.offset = i * gib;
        assert_ok(conv_zip_directory_add(&directory, &entry, NULL));
    }
    assert_non_null(directory.file);
    size_t size;
    uint8_t *all = take_all(&directory, &size), *end = all + directory.size;
    assert_int_equal(conv_bytes_get(end, 4, true), 0x06064B50);
    assert_true(conv_bytes_get(end + 32, 8, true) == count &&
                conv_bytes_get(end + 40, 8, true) == directory.size);
    assert_int_equal(conv_bytes_get(end + 76 + 10, 2, true), 0xFFFF);
    const struct conv_zip_file file = {.data = all, .size = size, .end = directory.size};
    uint64_t at = 0, i = 0;
    for (; conv_zip_record_next(&file, &at, &record); i++) {
        snprintf(name, sizeof name, "%llu.png", (unsigned long long)i);
        assert_int_equal(record.name_size, strlen(name));
        assert_memory_equal(record.name, name, record.name_size);
        assert_true(record.offset == i * gib);
    }
    assert_true(i == count);
    free(all);
    conv_zip_directory_free(&directory);
}

UNIT_TEST(test_headers)
{
    static uint8_t header[CONV_ZIP_HEADER_MOST];
    struct conv_zip_entry entry = make_entry("a.png");
    entry.size = entry.packed = 5 * gib;
    assert_int_equal(conv_zip_header(header, &entry), 30 + 5 + 20 + 9);
    assert_int_equal(conv_bytes_get(header + 18, 4, true), 0xFFFFFFFF);
    assert_true(conv_bytes_get(header + 39, 8, true) == 5 * gib &&
                conv_bytes_get(header + 47, 8, true) == 5 * gib);
}

// The flag for UTF-8 is set for names that need it and are valid.
UNIT_TEST(test_names)
{
    static const struct {
        const char *name;
        bool is_utf8;
    } names[] = {
        {"a.png", false},
        {"\xC3\xA4.png", true},
        {"\xE4.png", false},
        {"a\xC3", false},
        {"\xF0\x9F\x98\x80", true},
        {"\xF0\x9F\x98", false},
        {"\xC0\xAE", false},         // too long
        {"\xE0\x80\xAF", false},     // too long
        {"\xED\xA0\x80", false},     // a surrogate
        {"\xF4\x90\x80\x80", false}, // above U+10FFFF
        {"\xFF", false},
        {"\xC3\xA4/\x80", false},
    };
    static uint8_t header[CONV_ZIP_HEADER_MOST];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct conv_zip_entry entry = make_entry(names[i].name);
        conv_zip_header(header, &entry);
        if ((conv_bytes_get(header + 6, 2, true) == 0x800) != names[i].is_utf8)
            fail_msg("%s", names[i].name);
    }
}

UNIT_MAIN(NULL, NULL)
