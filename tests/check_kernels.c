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

#include "check_kernels.h"
#include "kernels/ladder/ladder.h"
#include "support/variants.h"

#define MAX_SATURATED 0.25

struct options {
    struct variants_choice choice;
    bool special; // the cases of check_kernels_special.c, after the random ones
};

// --- all variants --------------------------------------------------------------------------------

#define MOST_VARIANTS 96

// A variant of the table, or a step of the ladder.
struct entry {
    const struct conv_variant *variant;
    bool shape, interleaved;
};

static int list_variants(struct entry *entries)
{
    int in_table, step_count, count = 0;
    const struct conv_variant *const *variants = conv_stencil_variants(&in_table);
    const struct conv_ladder_step *steps = conv_ladder_steps(&step_count);
    for (int i = 0; i < in_table && count < MOST_VARIANTS; i++)
        entries[count++] = (struct entry){.variant = variants[i]};
    for (int i = 0; i < step_count && count < MOST_VARIANTS; i++) {
#ifdef CONV_EMULATED
        // One more block shape per step is enough: on the CPU the large ones take most of the time.
        if (steps[i].shape && steps[i - 1].shape)
            continue;
#endif
        if (!steps[i].product)
            entries[count++] = (struct entry){.variant = steps[i].variant,
                                              .shape = steps[i].shape,
                                              .interleaved = steps[i].interleaved};
    }
    return count;
}

// --- checking ------------------------------------------------------------------------------------

// Scratch has exactly the size that the plan asks for and is filled with garbage.
bool check_cpu_run(const struct conv_variant *variant, struct check_case *c)
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
    if (entry->variant->place == CONV_ON_CUDA)
        return check_cuda_run(entry->variant, c);
#endif
    return check_cpu_run(entry->variant, c);
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
    struct check_case pixels = {0}, *run = c;
    if (entry->interleaved)
        check_case_init_interleaved(run = &pixels, c);
    bool ok = run_variant(entry, run);
    if (!ok)
        check_case_print(c);
    ok = ok && check_case_compare(run, variant->name, false);
    check_case_free(&pixels);
    return ok;
}

// Which variants a case applies to, and whether the reference is compared as well.
struct scope {
    bool shapes; // other block shapes of the ladder's steps as well
    bool define; // the reference is compared with the definition
};

static const struct scope random_cases = {.shapes = true, .define = true};
#ifdef CONV_EMULATED
static const struct scope special_cases = {.shapes = false, .define = true};
#else
static const struct scope special_cases = {.shapes = true, .define = true};
#endif

// Runs the requested variants on one case.
static bool check_case_variants(struct check_case *c, struct scope scope,
                                const struct variants_choice *choice,
                                const struct variants_machine *machine, struct tally *tallies)
{
    struct entry entries[MOST_VARIANTS];
    int count = list_variants(entries);
    bool ok = true, expected = false;
    for (int r = 0; r < count; r++) {
        const struct conv_variant *variant = entries[r].variant;
        if ((!scope.shapes && entries[r].shape) ||
            (c->only && strncmp(variant->name, c->only, strlen(c->only)) != 0) ||
            !variants_want(choice, variant->place, variant->name) ||
            variants_obstacle(machine, variant->place, variant->needs))
            continue;
        if (!expected && !check_case_expect(c, scope.define))
            return false;
        expected = true;
        ok = check_variant(&entries[r], c, &tallies[r]) && ok;
    }
    return ok;
}

static bool report(const struct variants_choice *choice, const struct variants_machine *machine,
                   const struct tally *tallies)
{
    struct entry entries[MOST_VARIANTS];
    int count = list_variants(entries);
    bool ok = true, found = !choice->variant;
    for (int r = 0; r < count; r++) {
        const struct conv_variant *variant = entries[r].variant;
        const char *obstacle = variants_obstacle(machine, variant->place, variant->needs);
        if (!variants_want(choice, variant->place, variant->name))
            continue;
        found = true;
        if (obstacle) {
            printf("%-22s skipped: %s\n", variant->name, obstacle);
            continue;
        }
        // About half of the cases are good; with fewer cases the share varies more by chance.
        double half = tallies[r].cases / 2.0 - 1.5 * sqrt(tallies[r].cases);
        bool vacuous = choice->rounds >= 100 && tallies[r].good < half;
        printf("%-22s %d cases equal, %d of them with at most %d%% saturated%s\n", variant->name,
               tallies[r].cases, tallies[r].good, (int)(100 * MAX_SATURATED),
               vacuous ? ": FAILED, too few" : "");
        ok = ok && !vacuous;
    }
    if (!found)
        printf("FAILED: there is no variant %s here\n", choice->variant);
    return ok && found;
}

// The arguments of the special cases.
struct special {
    const struct variants_choice *choice;
    const struct variants_machine *machine;
    struct tally tallies[MOST_VARIANTS];
};

static bool run_special(struct check_case *c, bool define, void *context)
{
    struct special *special = context;
    struct scope scope = special_cases;
    scope.define = define;
    return check_case_variants(c, scope, special->choice, special->machine, special->tallies);
}

static bool check_all(const struct options *options, const struct variants_machine *machine)
{
    const struct variants_choice *choice = &options->choice;
    struct tally tallies[MOST_VARIANTS] = {{0, 0}};
    bool ok = true;
    for (int round = 0; round < choice->rounds && ok; round++) {
        struct check_case c;
        check_case_init(&c, choice->seed + (uint64_t)round);
        ok = check_case_variants(&c, random_cases, choice, machine, tallies);
        check_case_free(&c);
    }
    ok = ok && report(choice, machine, tallies);
    struct special special = {.choice = choice, .machine = machine};
    return ok && (!options->special || check_special_cases(choice->seed, run_special, &special));
}

// --- main ----------------------------------------------------------------------------------------

int main(int argc, char **argv)
{
    struct options options = {
        .choice = {.seed = (uint64_t)time(NULL), .rounds = 400, .cpu = true, .cuda = true},
        .special = true};
    const struct option_row rows[] = {VARIANTS_OPTIONS(&options.choice),
                                      {"--no-special", .off = &options.special}};
    struct variants_machine machine;
    int code = 2;
    if (!options_parse(rows, sizeof rows / sizeof rows[0], argc, argv) ||
        !variants_begin(&machine, &options.choice, check_selftest, &code))
        return code;
    if (options.choice.rounds == 1) // repeats one random case
        options.special = false;
    if (!check_all(&options, &machine))
        return 1;
#if CONV_HAVE_CUDA
    if (machine.capability && !options.choice.variant && !check_cuda_alpha(options.choice.seed))
        return 1;
#endif
    return 0;
}
