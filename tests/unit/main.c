// SPDX-License-Identifier: MIT
// One program with most unit tests, since linking each of them separately takes longer than running
// most of them. The name by which it is called chooses the test: build/tests/test_NAME is a link to
// it, and its first argument may name one as well.
#include <stdio.h>
#include <string.h>

#define UNIT_TEST(name) int name(void);
#include "unit_test_names.h"
#undef UNIT_TEST

static const struct {
    const char *name;
    int (*run)(void);
} tests[] = {
#define UNIT_TEST(name) {#name, name},
#include "unit_test_names.h"
#undef UNIT_TEST
};

int main(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *wanted = slash ? slash + 1 : argc > 0 ? argv[0] : "";
    if (argc > 1)
        wanted = argv[1];
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, wanted) == 0)
            return tests[i].run();
    fprintf(stderr, "unit_tests: no test '%s'; the tests are:\n", wanted);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        fprintf(stderr, "  %s\n", tests[i].name);
    return 2;
}
