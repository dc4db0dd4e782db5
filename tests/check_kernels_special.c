// SPDX-License-Identifier: MIT
// Cases that random ones hardly meet: divisors and their ties, tiny coefficients, large planes,
// layouts, heights and columns of tiles.
#include <stdio.h>
#include <stdlib.h>

#include "check_kernels.h"

#ifndef CHECK_DIVISION_STEP
#define CHECK_DIVISION_STEP 5 // one of this many divisions is tried, all of them with CONV_ROUNDS
#endif
#ifndef CHECK_DEFINE_DIVISIONS
#define CHECK_DEFINE_DIVISIONS 1 // 0: of divisions the reference is right, as another run shows
#endif
#ifndef CHECK_STEP
#define CHECK_STEP 1 // one of this many layouts and columns is tried; the seed says which
#endif
#ifndef CHECK_LARGE
#define CHECK_LARGE 1 // 0: no large planes, to save time
#endif

struct division {
    int depth, coef, divisor;
};

#define MOST_DIVISIONS 1000

// All divisors that filters are likely to have, each with many sums of two taps, of both signs and
// with all possible ties. All take the same time.
static int list_divisions(struct division *divisions)
{
    static const int large[] = {273,  300,  511,   512,   513,   1000,
                                1024, 4095, 21846, 32768, 65535, 65537};
    static const int coefs[] = {255, 128, 29, -254, -77, 1000, 60000};
    int count = 0;
    for (int i = 1; i < 260 + (int)(sizeof large / sizeof large[0]); i++) {
        int divisor = i < 260 ? i : large[i - 260];
        // Each divisor gets one coefficient, in rotation; the usual ones get all coefficients.
        bool usual = i >= 260 || i <= 10 || i == 16 || i == 18 || i == 25 || i == 30 || i == 256;
        for (int k = 0; k < (int)(sizeof coefs / sizeof coefs[0]); k++)
            if (usual || k == i % 5)
                divisions[count++] = (struct division){8, coefs[k], divisor};
        // Among them are 82 and 122, whose float32 reciprocals miss the most ties.
        if (usual || i % 8 == 2) {
            divisions[count++] = (struct division){16, divisor - 1, divisor};
            divisions[count++] = (struct division){16, -29, divisor};
        }
    }
    return count;
}

static bool check_division(const struct division *d, check_run_fn run, void *context)
{
    struct check_case c;
    int offset = d->coef < 0 ? 255 * -d->coef / d->divisor : 0;
    check_case_init_division(&c, d->depth, d->coef, d->divisor, offset < 65535 ? offset : 65535);
    bool ok = run(&c, CHECK_DEFINE_DIVISIONS, context);
    check_case_free(&c);
    return ok;
}

static bool check_divisions(uint64_t seed, check_run_fn run, void *context)
{
    // An even divisor beyond 2^17, which kernels with wide sums do not scale. Among the sums is one
    // half of it plus 1: not a tie, but rounded to 1, which is odd.
    static const struct division wide = {8, 65535, 131074};
    struct division divisions[MOST_DIVISIONS];
    int count = list_divisions(divisions);
    int step = getenv("CONV_ROUNDS") ? 1 : CHECK_DIVISION_STEP;
    bool ok = check_division(&wide, run, context);
    for (int i = (int)(seed % (unsigned)step); i < count && ok; i += step)
        ok = check_division(&divisions[i], run, context);
    return ok;
}

// Coefficients that must not be lost in sums: scaled sums represent them from 2^-102 on, and a
// variant with such sums must refuse smaller ones.
static bool check_ties(check_run_fn run, void *context)
{
    static const double tiny[] = {0x1p-60, 0x1p-102, 0x1p-103, 0x1p-130};
    bool ok = true;
    for (int i = 0; i < (int)(sizeof tiny / sizeof tiny[0]) && ok; i++) {
        struct check_case c;
        check_case_init_tie(&c, tiny[i]);
        ok = run(&c, true, context);
        check_case_free(&c);
    }
    return ok;
}

static bool check_large(check_run_fn run, void *context)
{
    bool ok = true;
    for (int side = 1; side <= 5 && ok; side += 2) {
        struct check_case c;
        check_case_init_large(&c, side);
        ok = run(&c, side == 1, context); // the definition takes long
        check_case_free(&c);
    }
    return ok;
}

static bool check_layouts(uint64_t seed, check_run_fn run, void *context)
{
    static const int sides[] = {15, 31};
    bool ok = true;
    for (int i = (int)(seed % CHECK_STEP); i < 2 * (int)(sizeof sides / sizeof sides[0]) && ok;
         i += CHECK_STEP) {
        struct check_case c;
        check_case_init_layout(&c, sides[i / 2], i % 2,
                               i % 3 ? CONV_BORDER_REPLICATE : CONV_BORDER_REFLECT);
        ok = run(&c, true, context);
        check_case_free(&c);
    }
    return ok;
}

// Planes of one tile, of 30 tiles, and of one again, for which variants may use different amounts
// of shared memory. In the program, streams launch both at the same time.
static bool check_heights(check_run_fn run, void *context)
{
    static const int heights[] = {16, 480, 16};
    bool ok = true;
    for (int i = 0; i < (int)(sizeof heights / sizeof heights[0]) && ok; i++) {
        struct check_case c;
        check_case_init_height(&c, heights[i]);
        ok = run(&c, true, context);
        check_case_free(&c);
    }
    return ok;
}

// Tiles of which a block filters those below one another, keeping sums from one to the next.
static bool check_columns(uint64_t seed, check_run_fn run, void *context)
{
    static const struct {
        int side, depth, sharpens;
        enum conv_border border;
    } cases[] = {{7, 8, 0, CONV_BORDER_REPLICATE},  {7, 8, 0, CONV_BORDER_REFLECT},
                 {7, 8, 0, CONV_BORDER_REFLECT101}, {7, 8, 1, CONV_BORDER_WRAP},
                 {7, 8, 0, CONV_BORDER_CONSTANT},   {19, 8, 1, CONV_BORDER_REFLECT},
                 {7, 16, 0, CONV_BORDER_REPLICATE}, {19, 16, 0, CONV_BORDER_CONSTANT},
                 {7, 16, 1, CONV_BORDER_REFLECT},   {19, 16, 1, CONV_BORDER_REPLICATE}};
    bool ok = true;
    for (int i = (int)(seed % CHECK_STEP); i < (int)(sizeof cases / sizeof cases[0]) && ok;
         i += CHECK_STEP) {
        struct check_case c;
        check_case_init_column(&c, cases[i].side, cases[i].depth, cases[i].sharpens, i % 2,
                               cases[i].border);
        ok = run(&c, false, context); // the definition takes too long
        check_case_free(&c);
    }
    return ok;
}

bool check_special_cases(uint64_t seed, check_run_fn run, void *context)
{
    const struct {
        const char *name;
        bool ok;
    } done[] = {{"divisors", check_divisions(seed, run, context)},
                {"ties", check_ties(run, context)},
                {"layouts", check_layouts(seed, run, context)},
                {"heights", check_heights(run, context)},
                {"columns", check_columns(seed, run, context)},
                {"large planes", !CHECK_LARGE || check_large(run, context)}};
    bool ok = true;
    for (size_t i = 0; i < sizeof done / sizeof done[0] - !CHECK_LARGE; i++) {
        printf("%s: %s\n", done[i].name, done[i].ok ? "equal" : "FAILED");
        ok = ok && done[i].ok;
    }
    return ok;
}
