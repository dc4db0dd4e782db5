// SPDX-License-Identifier: MIT
// The command line of the programs that check.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// An option that sets one of these. `off` becomes false, and the option has no value.
struct option_row {
    const char *name;
    uint64_t *seed;
    int *number;
    const char **text;
    bool *off;
};

// False after an unknown option or one without its value, with the usage on stderr.
static inline bool options_parse(const struct option_row *rows, size_t count, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t r = 0;
        while (r < count && strcmp(rows[r].name, argv[i]) != 0)
            r++;
        if (r == count || (!rows[r].off && ++i == argc)) {
            fprintf(stderr, "usage: %s", argv[0]);
            for (r = 0; r < count; r++)
                fprintf(stderr, " [%s%s]", rows[r].name, rows[r].off ? "" : " VALUE");
            fputc('\n', stderr);
            return false;
        }
        if (rows[r].off)
            *rows[r].off = false;
        else if (rows[r].text)
            *rows[r].text = argv[i];
        else if (rows[r].number)
            *rows[r].number = atoi(argv[i]);
        else
            *rows[r].seed = strtoull(argv[i], NULL, 10);
    }
    return true;
}
