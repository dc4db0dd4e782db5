// SPDX-License-Identifier: MIT
// The program and the library divide the same limit of memory in the same way, and a folder call
// over archives stays within it: the library once booked members of archives without counting them.
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.h"
#include "conv.h"
#include "run/pipeline.h"
#include "support/folder.h"
#include "support/png_make.h"
#include "support/random.h"
#include "support/unit.h"

#define MIB ((size_t)1 << 20)
#define LIMIT_MIB 64 // as a Slurm job states it, so that what is in use now does not matter
#define JOBS 2
#define ARCHIVES 24

// What a door hands to the run.
struct handed {
    struct conv_division memory;
    size_t keep;
};
static int handed_to = -1; // a pipe, instead of a run; or -1

enum conv_status __real_conv_pipeline_run(const struct conv_pipeline_config *config,
                                          struct conv_source *source, struct conv_report *report,
                                          struct conv_err *err);
enum conv_status __wrap_conv_pipeline_run(const struct conv_pipeline_config *config,
                                          struct conv_source *source, struct conv_report *report,
                                          struct conv_err *err);
enum conv_status __wrap_conv_pipeline_run(const struct conv_pipeline_config *config,
                                          struct conv_source *source, struct conv_report *report,
                                          struct conv_err *err)
{
    struct handed handed = {config->memory, config->codec.keep};
    if (handed_to < 0)
        return __real_conv_pipeline_run(config, source, report, err);
    return write(handed_to, &handed, sizeof handed) == sizeof handed ? CONV_OK : CONV_ERR_IO;
}

// --- archives ------------------------------------------------------------------------------------

// Noise: a file of 2.6 MB, which takes far longer to be encoded than to be read, so that members
// wait.
static void make_image(struct png_file *image)
{
    enum { SIDE = 1600 };
    uint64_t noise = 1;
    struct png_spec spec = {.width = SIDE, .height = SIDE, .depth = 8};
    uint16_t *samples = malloc((size_t)SIDE * SIDE * sizeof *samples);
    assert_non_null(samples);
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++)
        samples[i] = random_below(&noise, 256);
    spec.samples = samples;
    png_make_image(image, &spec);
    free(samples);
}

// --- the doors -----------------------------------------------------------------------------------

static void run_program(const char *in, const char *out)
{
    const char *const words[] = {"conv", "emboss", "--device", "cpu", "-j2", "-q", in, out};
    char *copies[sizeof words / sizeof words[0] + 1] = {NULL};
    int count = sizeof words / sizeof words[0];
    for (int i = 0; i < count; i++)
        copies[i] = strdup(words[i]);
    (void)conv_commands_main(conv_engine_devices, count, copies);
}

// How many images are done, or -1.
static int run_library(const char *const *inputs, int count, const char *out)
{
    conv_folder_progress result = {.size = sizeof result};
    conv_context *context;
    conv_context_options settings = CONV_CONTEXT_OPTIONS_INIT;
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    settings.device = "cpu";
    settings.threads = JOBS;
    options.archives = 1;
    conv_status status = conv_context_create(&context, &settings, NULL);
    if (!status)
        status = conv_filter_folder(context, "emboss", inputs, count, out, &options, &result);
    if (status)
        fprintf(stderr, "%s\n", conv_context_message(context));
    conv_context_destroy(context);
    return status ? -1 : (int)result.done;
}

// The archives, which the library makes in a process of its own: that of the tests stays small.
static int set_up(void **state)
{
    struct png_file image = {0};
    char text[300];
    if (folder_make(state))
        return -1;
    make_image(&image);
    folder_write("in/a.txt", "");
    folder_write_bytes("a.png", image.data, image.size);
    png_make_free(&image);
    pid_t child = fork();
    if (child == 0) {
        const char *input = folder_path("a.png");
        _exit(run_library(&input, 1, folder_path("00.zip")) != 1);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    snprintf(text, sizeof text, "cd %s && for i in $(seq -w 1 %d); do cp 00.zip $i.zip; done",
             folder_path(""), ARCHIVES - 1);
    assert_int_equal(system(text), 0);
    snprintf(text, sizeof text, "%d", LIMIT_MIB);
    return setenv("SLURM_MEM_PER_NODE", text, 1);
}

// What the door hands over in a process of its own.
static struct handed ask(bool library, const char *in, const char *out)
{
    struct handed handed = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        handed_to = ends[1];
        if (library)
            (void)run_library(&in, 1, out);
        else
            run_program(in, out);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &handed, sizeof handed), sizeof handed);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return handed;
}

// Member by member, since padding has any contents.
static void assert_alike(const struct handed *a, const struct handed *b)
{
    const struct conv_division *x = &a->memory, *y = &b->memory;
    assert_int_equal(x->staging, y->staging);
    assert_int_equal(x->files, y->files);
    assert_int_equal(x->archives, y->archives);
    assert_int_equal(x->keep, y->keep);
    assert_int_equal(x->live, y->live);
    assert_int_equal(x->run, y->run);
    assert_int_equal(x->helpers, y->helpers);
    assert_int_equal(x->refuses_beyond, y->refuses_beyond);
    assert_int_equal(x->total, y->total);
    assert_int_equal(x->keep_staging, y->keep_staging);
    assert_int_equal(a->keep, b->keep);
}

UNIT_TEST(test_both_doors_divide_alike)
{
    static const struct {
        const char *in, *out;
        int sides; // on which members of archives wait
    } cases[] = {
        {"in", "out", 0}, {"00.zip", "out", 1}, {"in", "out.tar", 1}, {"00.zip", "o.zip", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *in = folder_path(cases[i].in), *out = folder_path(cases[i].out);
        struct handed program = ask(false, in, out), library = ask(true, in, out);
        assert_alike(&program, &library);
        size_t archives = program.memory.archives * (size_t)cases[i].sides;
        assert_int_equal(program.memory.run + archives, LIMIT_MIB * MIB);
    }
}

UNIT_TEST(test_archives_stay_within_the_limit)
{
    const char *preload = getenv("LD_PRELOAD");
    if (CONV_SANITIZED || (preload && strstr(preload, "vgpreload")))
        skip(); // memory of a sanitizer or of valgrind is not the run's
    const char *inputs[ARCHIVES];
    for (int i = 0; i < ARCHIVES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%02d.zip", i);
        inputs[i] = folder_path(name);
    }
    pid_t child = fork();
    if (child == 0) {
        struct rusage usage;
        int done = run_library(inputs, ARCHIVES, folder_path("out"));
        getrusage(RUSAGE_SELF, &usage);
        fprintf(stderr, "%d done, %ld of %d MiB\n", done, usage.ru_maxrss >> 10, LIMIT_MIB);
        _exit(done != ARCHIVES || usage.ru_maxrss >> 10 > LIMIT_MIB);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_int_equal(folder_count("out"), ARCHIVES);
}

UNIT_MAIN(set_up, folder_remove)
