// SPDX-License-Identifier: MIT
// Compares every layer variant that this machine can run with the reference, whatever its score:
// bit for bit, or within its bound of float64. First proves that it catches wrong variants.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "check_layers.h"
#include "kernels/ladder/ladder.h"
#include "support/variants.h"

#define MOST_VARIANTS 96
#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

struct options {
    struct variants_choice choice;
    int taps;      // of a random case, at most
    int repeats;   // runs of a variant on a GPU per case: errors of timing do not show in each
    bool networks; // the layers of known networks, after the random cases
};

struct tally {
    int cases, useful;
    double worst; // error of an inexact variant, as a share of its bound
};

// --- on the CPU ----------------------------------------------------------------------------------

// The case as a variant reads it: padded in a buffer if the variant leaves that to its caller.
struct prepared {
    struct conv_layer_batch batch;
    struct check_memory padded, packed, scratch;
    struct conv_layer_plan plan;
};

static void prepare(struct prepared *made, const struct conv_layer_variant *variant, unsigned have,
                    const struct check_case *c)
{
    *made = (struct prepared){.batch = check_case_batch(c)};
    struct conv_layer_plan *plan = &made->plan;
    if (!conv_layer_plan_find(plan, variant, &c->layer, &c->shape, have))
        abort(); // the caller has found one
    if (plan->pads) {
        int64_t row = plan->shape.width * (int64_t)sizeof(float), plane = row * plan->shape.height;
        check_memory_init(&made->padded, (size_t)(c->images * c->layer.channels * plane), 4, true);
        conv_layer_pad(&c->layer, &c->shape, &made->batch, (float *)(void *)made->padded.data);
        made->batch.src = made->padded.data;
        made->batch.src_row = row;
        made->batch.src_plane = plane;
        made->batch.src_image = plane * c->layer.channels;
    }
    plan->layer.precision = variant->precision;
    check_memory_init(&made->packed, (plan->packed_bytes + 63) / 64 * 64, 64, true);
    conv_layer_plan_pack(plan, plan->packed_bytes ? made->packed.data : NULL);
    // Scratch has exactly the size that the plan asks for and is filled with subnormal numbers.
    const uint32_t subnormal = 0x12345;
    check_memory_init(&made->scratch, (made->plan.scratch + 63) / 64 * 64, 64, true);
    for (size_t at = 0; at < made->scratch.size; at += sizeof subnormal)
        memcpy(made->scratch.data + at, &subnormal, sizeof subnormal);
    made->batch.scratch = made->plan.scratch ? made->scratch.data : NULL;
}

static void free_prepared(struct prepared *made)
{
    check_memory_free(&made->padded);
    check_memory_free(&made->packed);
    check_memory_free(&made->scratch);
}

// True if the rows from `first` on still hold the pattern.
static bool rows_untouched(const struct check_case *c, int first)
{
    size_t row = (size_t)conv_layer_out_width(&c->layer, c->shape.width) *
                 conv_element_size(c->layer.output);
    size_t height = (size_t)conv_layer_out_height(&c->layer, c->shape.height);
    for (size_t at = 0; at < c->dst.size; at++)
        if (at / row % height >= (size_t)first && c->dst.data[at] != check_memory_pattern)
            return false;
    return true;
}

// Arithmetic on subnormal numbers takes a hundred times as long. Where a case has none, a variant
// that meets one computes with what scratch held before (x86 says so in a sticky flag).
#ifdef __x86_64__
#define DENORMAL_FLAG 2u // of MXCSR

static void forget_subnormals(void)
{
    _mm_setcsr(_mm_getcsr() & ~DENORMAL_FLAG);
}

static bool met_subnormals(void)
{
    return (_mm_getcsr() & DENORMAL_FLAG) != 0;
}
#else
static void forget_subnormals(void)
{
}

static bool met_subnormals(void)
{
    return false;
}
#endif

bool check_cpu_run(const struct conv_layer_variant *variant, unsigned have, struct check_case *c,
                   bool quiet)
{
    struct prepared made;
    prepare(&made, variant, have, c);
    check_memory_clear(&c->dst);
    uint64_t random = c->seed + 1; // the parts depend on the case alone
    bool ok = true;
    for (int first = 0, height = made.batch.rows; first < height && ok; first += made.batch.rows) {
        made.batch.first_row = first;
        made.batch.rows = height - first;
        if (random_below(&random, 2))
            made.batch.rows = 1 + (int)random_below(&random, (unsigned)(height - first));
        forget_subnormals();
        int sets = made.plan.sets, cut = sets > 1 ? (int)random_below(&random, (unsigned)sets) : 0;
        enum conv_status status = CONV_OK;
        for (int set = 0; set <= cut && !status; set += cut ? cut : 1) { // two parts, or all
            made.batch.first_set = set;
            made.batch.sets = set ? sets - set : cut;
            status = variant->run(&made.plan, &made.batch);
        }
        bool garbage = c->numbers < CHECK_WIDE && met_subnormals();
        ok = status == CONV_OK && check_memory_holds(&made.scratch) && !garbage &&
             (first > 0 || rows_untouched(c, made.batch.rows));
        if (!ok && !quiet) {
            printf("FAILED %s: rows %d to %d: %s\n", variant->name, first,
                   first + made.batch.rows - 1,
                   status    ? "status"
                   : garbage ? "computed with scratch's old contents"
                             : "wrote elsewhere");
            check_case_print(c, variant->name);
        }
    }
    free_prepared(&made);
    return ok;
}

// --- checking ------------------------------------------------------------------------------------

// What the place of a variant offers in this case.
static unsigned offered(const struct conv_layer_variant *variant, const struct check_case *c,
                        const struct variants_machine *machine)
{
    if (variant->place != CONV_ON_CUDA)
        return machine->features;
#ifdef CONV_EMULATED // each case has a device of its own
    const char *reason = "";
    emulated_seed(check_case_order(c));
    return (unsigned)device_capability(&reason);
#else
    (void)c;
    return (unsigned)machine->capability;
#endif
}

// The steps of the ladder have lower scores, except for the last ones: `specialised` has kernels
// for layers of networks alone.
#define LEAST_CHOSEN 17

// Runs one variant on one case, on a GPU `repeats` times; false on a difference. `ladder`: the
// steps of the ladder, too.
static bool check_variant(const struct conv_layer_variant *variant, struct check_case *c,
                          const struct variants_machine *machine, int repeats, bool ladder,
                          struct tally *tally)
{
    unsigned have = offered(variant, c, machine);
    struct conv_layer_plan plan;
    if (!conv_layer_plan_find(&plan, variant, &c->layer, &c->shape, have) ||
        !check_case_suits(c, variant) ||
        (!ladder && variant->place == CONV_ON_CUDA && variant->score(&plan) < LEAST_CHOSEN))
        return true;
    tally->cases++;
    tally->useful += c->useful;
#if CONV_HAVE_CUDA
    if (variant->place == CONV_ON_CUDA) {
        bool ok = true;
        for (int i = 0; i < repeats && ok; i++) {
            check_memory_clear(&c->dst);
            ok = check_cuda_run(variant, have, c);
            if (!ok)
                check_case_print(c, variant->name);
            ok = ok && check_case_compare(c, variant, &tally->worst, false);
        }
        return ok;
    }
#else
    (void)repeats;
#endif
    return check_cpu_run(variant, have, c, false) &&
           check_case_compare(c, variant, &tally->worst, false);
}

// The variants of the table, then the steps of the ladder. NULL after the last.
static const struct conv_layer_variant *variant_at(int number)
{
    int count, step_count;
    const struct conv_layer_variant *const *variants = conv_layer_variants(&count);
    const struct conv_ladder_layer_step *steps = conv_ladder_layer_steps(&step_count);
    if (number < count)
        return variants[number];
    return number - count < step_count ? steps[number - count].variant : NULL;
}

// What is done with a case.
struct scope {
    bool ladder;         // the steps of the ladder, too
    bool define;         // the reference is compared with the definition
    const char *variant; // no other; NULL: all
};

// Runs the requested variants on one case.
static bool check_case_variants(struct check_case *c, struct scope scope,
                                const struct options *options,
                                const struct variants_machine *machine, struct tally *tallies)
{
    if (!check_case_expect(c, scope.define))
        return false;
    const struct conv_layer_variant *variant;
    bool ok = true;
    for (int r = 0; (variant = variant_at(r)); r++)
        if (variants_want(&options->choice, variant->place, variant->name) &&
            (!scope.variant || strcmp(scope.variant, variant->name) == 0) &&
            !variants_obstacle(machine, variant->place, variant->needs))
            ok = check_variant(variant, c, machine, options->repeats, scope.ladder, &tallies[r]) &&
                 ok;
    return ok;
}

// Plans for 10,000 images: outputs are larger than any cache. For fewer: those whose blocks have
// several images, and for cuda_layer_gemm: large tiles, one shared, and long chunks of sums.
#ifdef CONV_EMULATED // of 1 processor; check_layers runs the ladder, too, and the definition
#define MANY 36
#define FOR_GEMM 4 // layers, the last ones; the others' kernels would take most of the time
static const struct scope network_scope = {.ladder = false, .define = false};
#else
#define MANY 300
static const struct scope network_scope = {.ladder = true, .define = true};
#endif
static bool check_networks(const struct options *options, const struct variants_machine *machine,
                           struct tally *tallies)
{
    static const struct check_network_layer layers[] = {
        {1, 12, 5, 64, 64, 1, 10000},      {1, 12, 5, 70, 70, 1, 10000},
        {1, 50, 5, 28, 28, 1, 10000},      {1, 6, 5, 28, 28, 3, 10000},
        {6, 16, 5, 12, 12, 3, 10000},      {12, 24, 5, 33, 9, 1, 10000},
        {3, 64, 3, 4, 224, 1, 10000},      {3, 64, 7, 8, 60, 1, 10000},
        {16, 32, 4, 16, 16, 1, 10000},     {4, 24, 9, 13, 28, 1, 10000},
        {64, 128, 3, 4, 14, 1, 10000},     {40, 300, 1, 3, 35, 1, 10000},
        {90, 200, 1, 4, 33, 1, 10000},     {20, 50, 5, 7, 12, 2, 500},
        {40, 33, 3, 5, 9, 3, 1000},        {32, 64, 3, 6, 14, 1, 500},
        {12, 24, 5, 20, 33, 3, 10000},     {64, 256, 1, 2, 8, 1, 10000},
        {50, 20, 1, 4, 4, 60, 10000},      {200, 16, 1, 7, 7, 2, 10000},
        {1, 40, 1, 8, 8, 7, 10000},        {6, 16, 5, 12, 12, MANY, 300},
        {4, 16, 3, 18, 18, MANY / 2, 150}, {40, 128, 3, 36, 32, 1, 1},
        {60, 64, 3, 42, 36, 1, 1},         {1100, 20, 1, 15, 27, 2, 1},
        {1024, 64, 1, 6, 6, 1, 1},
    };
    bool ok = true;
    for (int i = 0; i < COUNT(layers) && ok; i++) {
        struct check_case c;
        check_case_init_network(&c, &layers[i]);
        struct scope scope = network_scope;
#ifdef CONV_EMULATED
        if (i >= COUNT(layers) - FOR_GEMM)
            scope.variant = "cuda_layer_gemm";
#endif
        ok = check_case_variants(&c, scope, options, machine, tallies);
        check_case_free(&c);
    }
    return ok;
}

static bool report(const struct options *options, const struct variants_machine *machine,
                   const struct tally *tallies)
{
    const struct conv_layer_variant *variant;
    bool ok = true, found = !options->choice.variant;
    for (int r = 0; (variant = variant_at(r)); r++) {
        const struct tally *tally = &tallies[r];
        const char *obstacle = variants_obstacle(machine, variant->place, variant->needs);
        if (!variants_want(&options->choice, variant->place, variant->name))
            continue;
        found = true;
        if (obstacle) {
            printf("%-28s skipped: %s\n", variant->name, obstacle);
            continue;
        }
        // Nearly all cases are useful; with few cases the share varies by chance.
        bool vacuous = tally->cases >= 20 && tally->useful < tally->cases / 2;
        printf("%-28s %d cases ", variant->name, tally->cases);
        if (variant->precision == CONV_PRECISION_EXACT)
            printf("equal");
        else
            printf("within %.0f%% of the bound %g", 100 * tally->worst, (double)variant->bound);
        printf(", %d of them with few zeros%s\n", tally->useful,
               vacuous ? ": FAILED, too few" : "");
        ok = ok && !vacuous;
    }
    if (!found)
        printf("FAILED: there is no variant %s here\n", options->choice.variant);
    return ok && found;
}

static bool check_all(const struct options *options, const struct variants_machine *machine)
{
    static struct tally tallies[MOST_VARIANTS];
    bool ok = true;
    for (int round = 0; round < options->choice.rounds && ok; round++) {
        struct check_case c;
        check_case_init(&c, options->choice.seed + (uint64_t)round, options->taps);
        ok = check_case_variants(&c, (struct scope){.ladder = true, .define = true}, options,
                                 machine, tallies);
        check_case_free(&c);
    }
    if (ok && options->networks) {
        ok = check_networks(options, machine, tallies);
        printf("layers of networks: %s\n", ok ? "equal" : "FAILED");
    }
    return ok && report(options, machine, tallies);
}

// --- main ----------------------------------------------------------------------------------------

int main(int argc, char **argv)
{
    struct options options = {
        .choice = {.seed = (uint64_t)time(NULL), .rounds = 300, .cpu = true, .cuda = true},
        .taps = 200000,
        .repeats = 1,
        .networks = true};
    const struct option_row rows[] = {VARIANTS_OPTIONS(&options.choice),
                                      {"--taps", .number = &options.taps},
                                      {"--repeat", .number = &options.repeats},
                                      {"--no-networks", .off = &options.networks}};
    struct variants_machine machine;
    int code = 2;
    if (!options_parse(rows, sizeof rows / sizeof rows[0], argc, argv) ||
        !variants_begin(&machine, &options.choice, check_selftest, &code))
        return code;
    if (options.choice.rounds == 1) // repeats one random case
        options.networks = false;
    return check_all(&options, &machine) ? 0 : 1;
}
