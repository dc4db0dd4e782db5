// SPDX-License-Identifier: MIT
// Members of archives that wait take a part of the memory of the run, whoever starts it: the
// library once booked theirs without counting it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/sink.h"
#include "run/streams.h"

#define MIB ((size_t)1 << 20)

static size_t of_source, most_of_item, of_sink;

static bool limit_source(struct conv_source *source, size_t usual, size_t most)
{
    (void)source;
    of_source = usual;
    most_of_item = most;
    return true;
}

static void limit_sink(struct conv_sink *sink, size_t bytes)
{
    (void)sink;
    of_sink = bytes;
}

static void test_members_of_archives_are_counted(void **state)
{
    (void)state;
    static const struct conv_source_ops holds = {.limit = limit_source}, holds_none = {0};
    static const struct conv_sink_ops orders = {.limit = limit_sink}, orders_none = {0};
    static const struct {
        size_t mem_limit, memory, part; // memory 0: not limited
    } cases[] = {{400 * MIB, 0, 100 * MIB},
                 {400 * MIB, 800 * MIB, 50 * MIB},
                 {400 * MIB, 8000 * MIB, 100 * MIB},
                 {40000 * MIB, 0, 1024 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int kind = 0; kind < 4; kind++) {
            bool reads = kind & 1, writes = kind & 2;
            struct conv_source source = {reads ? &holds : &holds_none};
            struct conv_sink sink = {writes ? &orders : &orders_none};
            struct conv_pipeline_config config = {
                .mem_limit = cases[i].mem_limit, .memory = cases[i].memory, .sink = &sink};
            of_source = of_sink = most_of_item = 0;
            conv_defaults_limit_archives(&config, &source);
            assert_int_equal(of_source, reads ? cases[i].part : 0);
            assert_int_equal(most_of_item, reads ? cases[i].mem_limit : 0);
            assert_int_equal(of_sink, writes ? cases[i].part : 0);
            size_t taken = cases[i].memory ? cases[i].part * (size_t)(reads + writes) : 0;
            assert_int_equal(config.memory, cases[i].memory - taken);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_of_archives_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
