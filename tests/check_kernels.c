// SPDX-License-Identifier: MIT
// Compares every variant that this machine can run with the reference, whatever its score, and the
// reference with an independent definition, on random filters and images. First proves that it
// catches wrong variants.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/features.h"
#include "check_kernels.h"
#include "support/device.h"

#define MAX_SATURATED 0.25
#define SELFTEST_ROUNDS 400
#define SELFTEST_SEED 1
#ifndef CHECK_DIVISION_STEP
#define CHECK_DIVISION_STEP 1 // one of this many divisions is tried
#endif
#ifndef CHECK_DEFINE_DIVISIONS
#define CHECK_DEFINE_DIVISIONS 1 // 0: of divisions the reference is right, as another run shows
#endif
#ifndef CHECK_LARGE
#define CHECK_LARGE 1 // 0: no large planes, to save time
#endif

struct options {
    uint64_t seed;
    int rounds;
    const char *variant; // NULL: all
    const char *hides;   // an instruction set that CONV_DISABLE hides; NULL: none
    bool cpu, cuda;
    bool special; // divisors, ties, layouts, heights and large planes, after the random cases
};

struct machine {
    unsigned features;
    int capability; // 0: no CUDA device
    const char *reason;
};

// --- wrong variants
// ----------------------------------------------------------------------------------

static enum conv_status run_reference(const struct conv_stencil *stencil,
                                      const struct conv_stencil_batch *batch)
{
    static struct conv_stencil_plan plan;
    conv_stencil_plan_init(&plan, &conv_cpu_reference, stencil);
    return conv_cpu_reference.run(&plan, batch);
}

// (2N + 1) / 2d instead of N / d: differs only at ties, if d is even.
static enum conv_status run_half_up(const struct conv_stencil_plan *plan,
                                    const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    struct conv_stencil wrong = *stencil;
    if (stencil->fits_int32 && stencil->divisor % 2 == 0) {
        wrong.divisor *= 2;
        wrong.bias = 2 * wrong.bias + 1;
        for (int i = 0; i < wrong.width * wrong.height; i++)
            wrong.icoef[i] *= 2;
    }
    return run_reference(&wrong, batch);
}

static enum conv_status run_wrong_last_column(const struct conv_stencil_plan *plan,
                                              const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    run_reference(stencil, batch);
    const struct conv_stencil_plane *plane = &batch->planes[0];
    int bytes = plane->width * (stencil->depth / 8);
    for (int y = 0; y < plane->height; y++)
        plane->dst[y * plane->dst_stride + bytes - 1] ^= 1;
    return CONV_OK;
}

static enum conv_status run_write_after(const struct conv_stencil_plan *plan,
                                        const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    run_reference(stencil, batch);
    const struct conv_stencil_plane *plane = &batch->planes[batch->count - 1];
    plane->dst[plane->height * plane->dst_stride] = 0;
    return CONV_OK;
}

// Right in the interior, wrong at the border.
static enum conv_status run_wrong_border(const struct conv_stencil_plan *plan,
                                         const struct conv_stencil_batch *batch)
{
    const struct conv_stencil *stencil = plan->stencil;
    struct conv_stencil wrong = *stencil;
    if (wrong.border == CONV_BORDER_REFLECT)
        wrong.border = CONV_BORDER_REFLECT101;
    return run_reference(&wrong, batch);
}

static const struct conv_variant wrong_variants[] = {
    {.name = "rounds half up", .run = run_half_up},
    {.name = "wrong last column", .run = run_wrong_last_column},
    {.name = "writes after the image", .run = run_write_after},
    {.name = "reflect for reflect101", .run = run_wrong_border},
};

// --- all variants
// ----------------------------------------------------------------------------------

#define MOST_VARIANTS 96

// A variant of the table, or one that only benchmarks use.
struct entry {
    const struct conv_variant *variant;
    bool in_table, interleaved;
};

static int list_variants(struct entry *entries)
{
    int in_table, extras, count = 0;
    const struct conv_variant *const *variants = conv_stencil_variants(&in_table);
    const struct conv_stencil_extra *extra = conv_stencil_extras(&extras);
    for (int i = 0; i < in_table && count < MOST_VARIANTS; i++)
        entries[count++] = (struct entry){variants[i], .in_table = true};
    for (int i = 0; i < extras && count < MOST_VARIANTS; i++) {
#ifdef CONV_EMULATED
        // One more block shape per variant is enough: on the CPU the large ones take most of the
        // time.
        if (extra[i].of && i > 0 && extra[i - 1].of == extra[i].of)
            continue;
#endif
        entries[count++] = (struct entry){extra[i].variant, .interleaved = extra[i].interleaved};
    }
    return count;
}

// --- checking ------------------------------------------------------------------------------------

static bool can_run(const struct conv_variant *variant, const struct machine *machine)
{
    bool on_cuda = variant->place == CONV_ON_CUDA;
    if (on_cuda && !machine->capability)
        return false;
    return conv_place_offers(variant->place,
                             on_cuda ? (unsigned)machine->capability : machine->features,
                             variant->needs);
}

static bool is_wanted(const struct conv_variant *variant, const struct options *options)
{
    return (variant->place == CONV_ON_CUDA ? options->cuda : options->cpu) &&
           (!options->variant || strcmp(options->variant, variant->name) == 0);
}

// Scratch has exactly the size that the plan asks for and is filled with garbage.
static bool run_on_cpu(const struct conv_variant *variant, struct check_case *c)
{
    static struct conv_stencil_plan plan;
    size_t size = 0;
    conv_stencil_plan_init(&plan, variant, &c->stencil);
    for (int p = 0; p < c->count; p++) {
        size_t need = conv_stencil_plan_scratch(&plan, c->planes[p].width);
        size = need > size ? need : size;
    }
    void *scratch = size ? aligned_alloc(64, (size + 63) / 64 * 64) : NULL;
    if (size && !scratch) {
        perror("check_kernels: aligned_alloc");
        exit(1);
    }
    if (scratch)
        memset(scratch, 0xee, size);
    struct conv_stencil_batch batch = {
        .planes = c->planes, .count = c->count, .cpu.scratch = scratch};
    int rows = c->planes[0].height;
    enum conv_status status = CONV_OK;
    if (c->count == 1 && rows > 1) { // bands, which threads take in any order
        batch.cpu.from = 1 + (int)(c->stencil.width * 7 + rows) % (rows - 1);
        batch.cpu.to = rows;
        status = variant->run(&plan, &batch);
        batch.cpu.to = batch.cpu.from;
        batch.cpu.from = 0;
    }
    if (!status)
        status = variant->run(&plan, &batch);
    free(scratch);
    if (status)
        printf("FAILED %s: status %d\n", variant->name, (int)status);
    return status == CONV_OK;
}

static bool run_variant(const struct entry *entry, struct check_case *c)
{
    check_case_clear(c);
#if CONV_HAVE_CUDA
    if (entry->interleaved)
        return check_cuda_run_interleaved(entry->variant, c);
    if (entry->variant->place == CONV_ON_CUDA)
        return check_cuda_run(entry->variant, c);
#endif
    return run_on_cpu(entry->variant, c);
}

struct tally {
    int cases, good; // good: at most MAX_SATURATED of the samples
};

// Runs one variant on one case; false on a difference.
static bool check_variant(const struct entry *entry, struct check_case *c, struct tally *tally)
{
    const struct conv_variant *variant = entry->variant;
    if (!conv_stencil_takes(variant, &c->stencil))
        return true;
    if (entry->interleaved && !check_case_is_image(c))
        return true;
    tally->cases++;
    tally->good += c->saturated <= MAX_SATURATED;
    if (!run_variant(entry, c)) {
        check_case_print(c);
        return false;
    }
    return check_case_compare(c, variant->name, false);
}

static bool selftest(void)
{
    bool all = true;
    for (size_t w = 0; w < sizeof wrong_variants / sizeof wrong_variants[0]; w++) {
        bool caught = false;
        for (int round = 0; round < SELFTEST_ROUNDS && !caught; round++) {
            struct check_case c;
            check_case_init(&c, SELFTEST_SEED + (uint64_t)round);
            if (!check_case_expect(&c, true)) {
                check_case_free(&c);
                return false;
            }
            check_case_clear(&c);
            run_on_cpu(&wrong_variants[w], &c);
            caught = !check_case_compare(&c, wrong_variants[w].name, true);
            check_case_free(&c);
        }
        printf("selftest: a variant that %s%s: %s\n",
               w == 1   ? "has a "
               : w == 3 ? "takes "
                        : "",
               wrong_variants[w].name, caught ? "caught" : "NOT CAUGHT");
        all = all && caught;
    }
    return all;
}

// Which variants a case applies to, and whether the reference is compared as well.
struct scope {
    bool extras; // those of benchmarks as well
    bool define; // the reference is compared with the definition
};

static const struct scope random_cases = {.extras = true, .define = true};
#ifdef CONV_EMULATED
static const struct scope special_cases = {.extras = false, .define = true};
#else
static const struct scope special_cases = {.extras = true, .define = true};
#endif

// Runs the requested variants on one case.
static bool check_case_variants(struct check_case *c, struct scope scope,
                                const struct options *options, const struct machine *machine,
                                struct tally *tallies)
{
    if (!check_case_expect(c, scope.define))
        return false;
    struct entry entries[MOST_VARIANTS];
    int count = list_variants(entries);
    bool ok = true;
    for (int r = 0; r < count; r++)
        if ((scope.extras || entries[r].in_table) && is_wanted(entries[r].variant, options) &&
            can_run(entries[r].variant, machine))
            ok = check_variant(&entries[r], c, &tallies[r]) && ok;
    return ok;
}

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

static bool check_divisions(const struct options *options, const struct machine *machine,
                            struct tally *tallies)
{
    struct division divisions[MOST_DIVISIONS];
    int count = list_divisions(divisions);
    struct scope scope = special_cases;
    scope.define = CHECK_DEFINE_DIVISIONS;
    bool ok = true;
    for (int i = (int)(options->seed % CHECK_DIVISION_STEP); i < count && ok;
         i += CHECK_DIVISION_STEP) {
        struct check_case c;
        const struct division *d = &divisions[i];
        int offset = d->coef < 0 ? 255 * -d->coef / d->divisor : 0;
        check_case_init_division(&c, d->depth, d->coef, d->divisor,
                                 offset < 65535 ? offset : 65535);
        ok = check_case_variants(&c, scope, options, machine, tallies);
        check_case_free(&c);
    }
    return ok;
}

// Coefficients that must not be lost in sums: scaled sums represent them from 2^-102 on, and a
// variant with such sums must refuse smaller ones.
static bool check_ties(const struct options *options, const struct machine *machine,
                       struct tally *tallies)
{
    static const double tiny[] = {0x1p-60, 0x1p-102, 0x1p-103, 0x1p-130};
    bool ok = true;
    for (int i = 0; i < (int)(sizeof tiny / sizeof tiny[0]) && ok; i++) {
        struct check_case c;
        check_case_init_tie(&c, tiny[i]);
        ok = check_case_variants(&c, special_cases, options, machine, tallies);
        check_case_free(&c);
    }
    return ok;
}

static bool check_large(const struct options *options, const struct machine *machine,
                        struct tally *tallies)
{
    bool ok = true;
    for (int side = 1; side <= 5 && ok; side += 2) {
        struct check_case c;
        check_case_init_large(&c, side);
        ok = check_case_variants(&c, special_cases, options, machine, tallies);
        check_case_free(&c);
    }
    return ok;
}

static bool check_layouts(const struct options *options, const struct machine *machine,
                          struct tally *tallies)
{
    static const int sides[] = {15, 31};
    bool ok = true;
    for (int i = 0; i < 2 * (int)(sizeof sides / sizeof sides[0]) && ok; i++) {
        struct check_case c;
        check_case_init_layout(&c, sides[i / 2], i % 2,
                               i % 3 ? CONV_BORDER_REPLICATE : CONV_BORDER_REFLECT);
        ok = check_case_variants(&c, special_cases, options, machine, tallies);
        check_case_free(&c);
    }
    return ok;
}

// Planes of one tile, of 30 tiles, and of one again, for which variants may use different amounts
// of shared memory. In the program, streams launch both at the same time.
static bool check_heights(const struct options *options, const struct machine *machine,
                          struct tally *tallies)
{
    static const int heights[] = {16, 480, 16};
    bool ok = true;
    for (int i = 0; i < (int)(sizeof heights / sizeof heights[0]) && ok; i++) {
        struct check_case c;
        check_case_init_height(&c, heights[i]);
        ok = check_case_variants(&c, special_cases, options, machine, tallies);
        check_case_free(&c);
    }
    return ok;
}

static bool report(const struct options *options, const struct machine *machine,
                   const struct tally *tallies)
{
    struct entry entries[MOST_VARIANTS];
    int count = list_variants(entries);
    bool ok = true, found = !options->variant;
    for (int r = 0; r < count; r++) {
        const struct conv_variant *variant = entries[r].variant;
        if (!is_wanted(variant, options))
            continue;
        found = true;
        if (!can_run(variant, machine)) {
            printf("%-22s skipped: %s\n", variant->name,
                   variant->place == CONV_ON_CUDA ? machine->reason : "this CPU cannot run it");
            continue;
        }
        // About half of the cases are good; with fewer cases the share varies more by chance.
        double half = tallies[r].cases / 2.0 - 1.5 * sqrt(tallies[r].cases);
        bool vacuous = options->rounds >= 100 && tallies[r].good < half;
        printf("%-22s %d cases equal, %d of them with at most %d%% saturated%s\n", variant->name,
               tallies[r].cases, tallies[r].good, (int)(100 * MAX_SATURATED),
               vacuous ? ": FAILED, too few" : "");
        ok = ok && !vacuous;
    }
    if (!found)
        printf("FAILED: there is no variant %s here\n", options->variant);
    return ok && found;
}

static bool check_all(const struct options *options, const struct machine *machine)
{
    struct tally tallies[MOST_VARIANTS] = {{0, 0}};
    bool ok = true;
    for (int round = 0; round < options->rounds && ok; round++) {
        struct check_case c;
        check_case_init(&c, options->seed + (uint64_t)round);
        ok = check_case_variants(&c, random_cases, options, machine, tallies);
        check_case_free(&c);
    }
    ok = ok && report(options, machine, tallies);
    struct tally special[MOST_VARIANTS] = {{0, 0}};
    if (ok && options->special) {
        ok = check_divisions(options, machine, special);
        printf("divisors: %s\n", ok ? "equal" : "FAILED");
    }
    if (ok && options->special) {
        ok = check_ties(options, machine, special);
        printf("ties: %s\n", ok ? "equal" : "FAILED");
    }
    if (ok && options->special) {
        ok = check_layouts(options, machine, special);
        printf("layouts: %s\n", ok ? "equal" : "FAILED");
    }
    if (ok && options->special) {
        ok = check_heights(options, machine, special);
        printf("heights: %s\n", ok ? "equal" : "FAILED");
    }
    if (ok && options->special && CHECK_LARGE) {
        ok = check_large(options, machine, special);
        printf("large planes: %s\n", ok ? "equal" : "FAILED");
    }
    return ok;
}

// --- main ----------------------------------------------------------------------------------------

static bool parse_options(struct options *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--seed") && value)
            options->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--rounds") && value)
            options->rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--variant") && value)
            options->variant = argv[++i];
        else if (!strcmp(argv[i], "--hides") && value)
            options->hides = argv[++i];
        else if (!strcmp(argv[i], "--cpu"))
            options->cuda = false;
        else if (!strcmp(argv[i], "--cuda"))
            options->cpu = false;
        else if (!strcmp(argv[i], "--no-special"))
            options->special = false;
        else
            return false;
    }
    if (options->rounds == 1) // to repeat a case
        options->special = false;
    return options->rounds > 0 && (options->cpu || options->cuda);
}

// True if the processor has the instruction set, whatever CONV_DISABLE says.
static bool processor_has(const char *isa)
{
    const char *text = getenv("CONV_DISABLE");
    char *disabled = text ? strdup(text) : NULL;
    unsetenv("CONV_DISABLE");
    unsigned features = conv_cpu_features();
    if (disabled)
        setenv("CONV_DISABLE", disabled, 1);
    free(disabled);
    size_t count;
    const struct conv_cpu_feature_row *rows = conv_cpu_feature_rows(&count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(rows[i].name, isa))
            return features & rows[i].bit;
    fprintf(stderr, "check_kernels: unknown instruction set '%s'\n", isa);
    exit(2);
}

int main(int argc, char **argv)
{
    struct options options = {
        .seed = (uint64_t)time(NULL), .rounds = 400, .cpu = true, .cuda = true, .special = true};
    if (!parse_options(&options, argc, argv)) {
        fprintf(stderr, "usage: check_kernels [--seed N] [--rounds N] [--variant NAME] "
                        "[--cpu | --cuda] [--no-special] [--hides ISA]\n");
        return 2;
    }
    if (options.hides && !processor_has(options.hides)) {
        printf("skipped: this processor has no %s to hide\n", options.hides);
        return 77;
    }
    struct machine machine = {.features = conv_cpu_features(), .reason = ""};
    if (options.cuda)
        machine.capability = device_capability(&machine.reason);
    if (options.cuda && !machine.capability) {
        int code = device_missing("CUDA variants", machine.reason);
        if (code == 1 || !options.cpu)
            return code;
    }
    if (!selftest())
        return 1;
    printf("seed %" PRIu64 ", %d rounds\n", options.seed, options.rounds);
    fflush(stdout);
    if (!check_all(&options, &machine))
        return 1;
#if CONV_HAVE_CUDA
    if (machine.capability && !options.variant && !check_cuda_alpha(options.seed))
        return 1;
#endif
    return 0;
}
