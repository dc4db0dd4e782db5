// SPDX-License-Identifier: MIT
// Plain tar: the reader reads what the writer writes, for every length of names; extensions that
// the writer does not use; damage.
#include <stdio.h>

#include "io/archive/archive.h"
#include "io/archive/archive_input.h"
#include "io/archive/tar.h"
#include "support/unit.h"

static uint8_t bytes[1 << 20];
static size_t used;

static void put(const void *data, size_t size)
{
    assert_true(used + size <= sizeof bytes);
    memcpy(bytes + used, data, size);
    used += size;
}

static void put_zeros(size_t size)
{
    assert_true(used + size <= sizeof bytes);
    memset(bytes + used, 0, size);
    used += size;
}

static void put_member(const struct conv_archive_member *member, const char *content)
{
    static struct conv_archive_frame frame;
    struct conv_err err = {0};
    assert_int_equal(conv_tar_frame(member, &frame, &err), CONV_OK);
    put(frame.head, frame.before);
    put(content, (size_t)member->size);
    put_zeros(frame.after);
}

// A header as other programs write it, with its content.
static void put_raw(const char *name, char type, const char *content, size_t size)
{
    struct conv_tar_header header = {0};
    snprintf(header.name, sizeof header.name, "%s", name);
    snprintf(header.mode, sizeof header.mode, "%07o", 0644);
    snprintf(header.size, sizeof header.size, "%011zo", size);
    header.type = type;
    memcpy(header.magic, "ustar\00000", 8);
    snprintf(header.checksum, sizeof header.checksum, "%06o", conv_tar_checksum(&header, false));
    put(&header, sizeof header);
    put(content, size);
    put_zeros(conv_tar_padding(size));
}

struct reading {
    struct conv_archive_input input;
    struct conv_archive_reader *reader;
    struct conv_archive_member member;
    struct conv_err err;
};

static void begin(struct reading *r)
{
    *r = (struct reading){0};
    conv_archive_input_open_bytes(&r->input, bytes, used);
    assert_int_equal(conv_archive_tar.read(&r->reader, &r->input, &r->err), CONV_OK);
}

static enum conv_archive_step step(struct reading *r)
{
    return r->reader->ops->next(r->reader, &r->member, &r->err);
}

static void end(struct reading *r)
{
    r->reader->ops->close(r->reader);
    conv_archive_input_close(&r->input);
    used = 0;
}

UNIT_TEST(test_names_of_every_length)
{
    char name[600];
    for (size_t length = 1; length < sizeof name; length++)
        for (size_t slash = 0; slash < length; slash += 1 + length / 7) {
            struct reading r;
            memset(name, 'n', length);
            name[length] = '\0';
            if (slash > 0 && slash + 1 < length)
                name[slash] = '/';
            put_member(
                &(struct conv_archive_member){
                    .name = name, .link = "", .uname = "", .gname = "", .size = 3},
                "abc");
            put_member(&(struct conv_archive_member){.kind = CONV_ARCHIVE_SYMLINK,
                                                     .name = "l",
                                                     .link = name,
                                                     .uname = "",
                                                     .gname = ""},
                       "");
            put_zeros(conv_tar_trailer(used));
            assert_int_equal(used % CONV_TAR_RECORD, 0);
            begin(&r);
            assert_int_equal(step(&r), CONV_ARCHIVE_MEMBER);
            assert_string_equal(r.member.name, name);
            assert_memory_equal(r.reader->ops->map(r.reader), "abc", 3);
            assert_int_equal(step(&r), CONV_ARCHIVE_MEMBER);
            assert_int_equal(r.member.kind, CONV_ARCHIVE_SYMLINK);
            assert_string_equal(r.member.link, name);
            assert_int_equal(step(&r), CONV_ARCHIVE_END);
            end(&r);
        }
}

UNIT_TEST(test_numbers)
{
    static const int64_t times[] = {0, 1, -1, INT64_C(1) << 33, -(INT64_C(1) << 40), 077777777777};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct reading r;
        put_member(&(struct conv_archive_member){.name = "a",
                                                 .link = "",
                                                 .uname = "u",
                                                 .gname = "g",
                                                 .mode = 07777,
                                                 .mtime.tv_sec = (time_t)times[i],
                                                 .uid = UINT64_C(5000000000),
                                                 .gid = 7},
                   "");
        put_zeros(1024);
        begin(&r);
        assert_int_equal(step(&r), CONV_ARCHIVE_MEMBER);
        assert_int_equal(r.member.mtime.tv_sec, times[i]);
        assert_int_equal(r.member.uid, UINT64_C(5000000000));
        assert_int_equal(r.member.gid, 7);
        assert_int_equal(r.member.mode, 07777);
        assert_string_equal(r.member.uname, "u");
        end(&r);
    }
    int64_t value;
    assert_false(conv_tar_parse_number(&value, "12x", 3));
    assert_false(conv_tar_parse_number(&value, "\x80\x01\0\0\0\0\0\0\0\0\0", 12)); // 2^80
    assert_true(conv_tar_parse_number(&value, "   17 ", 6));
    assert_int_equal(value, 017);
}

UNIT_TEST(test_pax)
{
    struct reading r;
    static const char records[] = "12 path=a/b\n"
                                  "18 mtime=-1.25000\n"
                                  "9 size=3\n"
                                  "13 uid=12345\n"
                                  "15 uname=a b c\n";
    put_raw("PaxHeaders/x", 'x', records, sizeof records - 1);
    put_raw("ignored", '0', "xyz", 3);
    put_raw("next", '0', "", 0); // what the header says is for one member
    put_zeros(1024);
    begin(&r);
    assert_int_equal(step(&r), CONV_ARCHIVE_MEMBER);
    assert_string_equal(r.member.name, "a/b");
    assert_int_equal(r.member.size, 3);
    assert_int_equal(r.member.uid, 12345);
    assert_int_equal(r.member.mtime.tv_sec, -2);
    assert_int_equal(r.member.mtime.tv_nsec, 750000000);
    assert_int_equal(step(&r), CONV_ARCHIVE_MEMBER);
    assert_string_equal(r.member.name, "next");
    assert_int_equal(r.member.uid, 0);
    end(&r);
    static const struct {
        const char *records;
        bool is_bad;
    } odd[] = {
        {"12 path=a/b", true},
        {"5 a=b\n", true},
        {"11 path=a/b\n", true},
        {"13 path=a/b\n", true},
        {"x", true},
        {"0 a=b\n", true},
        {"-6 a=b\n", true},
        {"99999999999999999999 a=b\n", true},
        {"10 size=x\n", true},
        {"9 uid=1x\n", false},
        {"7 uid=\n8 size=\n", false},
        {"14 mtime=1e-9\n", false},
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct conv_tar_pax pax = {0};
        struct conv_archive_input input;
        uint64_t left = strlen(odd[i].records);
        conv_archive_input_open_bytes(&input, (const uint8_t *)odd[i].records, (size_t)left);
        assert_int_equal(conv_tar_pax_read(&pax, &input, &left, NULL), CONV_OK);
        if (pax.bad.status != (odd[i].is_bad ? CONV_ERR_FORMAT : CONV_OK))
            fail_msg("%s: %d", odd[i].records, pax.bad.status);
        assert_false(pax.has_uid || pax.has_size || pax.has_mtime);
        conv_tar_pax_clear(&pax);
    }
}

// Each is reported, and the archive goes on after it.
UNIT_TEST(test_members_that_are_not_read)
{
    struct reading r;
    static const char sparse[] = "22 GNU.sparse.major=1\n"
                                 "22 GNU.sparse.minor=0\n";
    put_raw("PaxHeaders/x", 'x', sparse, sizeof sparse - 1);
    put_raw("sparse", '0', "abc", 3);
    put_raw("rest", 'M', "abc", 3);
    put_raw("what", 'Z', "abc", 3);
    put_raw("names", 'N', "abc", 3); // of GNU tar before 1990
    put_raw("pipe", '6', "", 0);
    put_raw("after", '0', "abc", 3);
    put_zeros(1024);
    begin(&r);
    assert_int_equal(step(&r), CONV_ARCHIVE_BAD);
    assert_string_equal(r.member.name, "sparse");
    for (int i = 0; i < 3; i++)
        assert_int_equal(step(&r), CONV_ARCHIVE_BAD);
    assert_string_equal(r.member.name, "names");
    assert_int_equal(step(&r), CONV_ARCHIVE_MEMBER);
    assert_int_equal(r.member.kind, CONV_ARCHIVE_DEVICE);
    assert_int_equal(step(&r), CONV_ARCHIVE_MEMBER);
    assert_string_equal(r.member.name, "after");
    end(&r);
}

// A sparse file whose map is a list in its PAX header: "offset,size,...", for 6 bytes of parts.
static void put_sparse(const char *map, const char *size)
{
    char records[256];
    const char *keys[] = {"GNU.sparse.map", "GNU.sparse.size"}, *values[] = {map, size};
    int end = 0;
    for (int i = 0; i < 2; i++) {
        int length = (int)(strlen(keys[i]) + strlen(values[i])) + 5; // with two digits
        assert_in_range(length, 10, 99);
        end += snprintf(records + end, sizeof records - (size_t)end, "%d %s=%s\n", length, keys[i],
                        values[i]);
    }
    put_raw("PaxHeaders/x", 'x', records, (size_t)end);
    put_raw("sparse", '0', "abcdef", 6);
    put_raw("after", '0', "abc", 3);
    put_zeros(1024);
}

// Maps that make no sense concern one member; so does a file that is larger than an archive of this
// size may become.
UNIT_TEST(test_sparse_maps)
{
    static const struct {
        const char *map, *size;
        bool good;
    } maps[] = {
        {"2,3,8,3", "20", true},
        {"0,6", "6", true},
        {"5,0,8,6", "14", true},
        {"2,3,4,3", "20", false},
        {"2,3,8,4", "20", false},
        {"2,3,8,2", "20", false},
        {"2,3,18,3", "20", false},
        {"8,3,2,3", "20", false},
        {"0,6", "5", false},
        {"0,6", "9223372036854775807", false},
        {"9200000000000000000,6", "9223372036854775807", false},
        // Malformed lists.
        {"", "20", false},
        {"1", "20", false},
        {"1,", "20", false},
        {",1", "20", false},
        {"1,2,3", "20", false},
        {"a,b", "20", false},
        {"1;2", "20", false},
        {"-1,2", "20", false},
    };
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        struct reading r;
        char content[32];
        put_sparse(maps[i].map, maps[i].size);
        begin(&r);
        if (step(&r) != (maps[i].good ? CONV_ARCHIVE_MEMBER : CONV_ARCHIVE_BAD))
            fail_msg("%s of %s: %s", maps[i].map, maps[i].size, r.err.text);
        assert_string_equal(r.member.name, "sparse");
        if (i == 0) {
            assert_null(r.reader->ops->map(r.reader));
            assert_int_equal(r.reader->ops->read(r.reader, content, 32, &r.err), 20);
            assert_memory_equal(content, "\0\0abc\0\0\0def\0\0\0\0\0\0\0\0\0", 20);
        }
        assert_int_equal(step(&r), CONV_ARCHIVE_MEMBER);
        assert_string_equal(r.member.name, "after");
        assert_int_equal(step(&r), CONV_ARCHIVE_END);
        end(&r);
    }
}

// However an archive is cut, whole members come first, then one reason.
UNIT_TEST(test_every_truncation)
{
    for (int i = 0; i < 3; i++)
        put_raw("name", '0', "0123456789", 10);
    put_zeros(1024);
    size_t whole = used;
    for (size_t size = 0; size < whole; size++) {
        struct reading r;
        used = size;
        begin(&r);
        size_t members = 0;
        enum conv_archive_step last;
        while ((last = step(&r)) == CONV_ARCHIVE_MEMBER)
            members++;
        assert_int_equal(last, CONV_ARCHIVE_DAMAGED);
        size_t expected = (size + 1024 - 522) / 1024;
        assert_int_equal(members, expected < 3 ? expected : 3);
        assert_non_null(strstr(r.err.text, "truncated archive"));
        end(&r);
    }
}

UNIT_TEST(test_recognition)
{
    put_raw("name", '0', "", 0);
    assert_true(conv_tar_recognise(bytes, used));
    assert_false(conv_tar_recognise(bytes, used - 1));
    bytes[0] ^= 1;
    assert_false(conv_tar_recognise(bytes, used));
    used = 0;
    put_zeros(512);
    assert_false(conv_tar_recognise(bytes, used));
    used = 0;
    assert_ptr_equal(conv_archive_of_path("a/B.TAR"), &conv_archive_tar);
    assert_null(conv_archive_of_path(".tar"));
    assert_null(conv_archive_of_path("tar"));
}

static int clear(void **state)
{
    (void)state;
    used = 0;
    return 0;
}

UNIT_MAIN_EACH(clear, NULL)
