// SPDX-License-Identifier: MIT
// What the library leaves alone in the process that uses it. Each test runs in a child process: in
// 1.0.0 an archive that became shorter ended it by SIGBUS, an output without a reader by SIGPIPE,
// and a file beyond the limit of sizes by SIGXFSZ.
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/api_image.h"
#include "support/api_test.h"
#include "support/folder.h"
#include "support/random.h"

#define MEMBERS 12
#define SIDE 400

extern char **environ;

// --- archives ------------------------------------------------------------------------------------

static void put_member(FILE *stream, const char *name, const void *data, size_t size)
{
    char header[512] = {0};
    static const char zeros[512];
    unsigned sum = 0;
    snprintf(header, 100, "%s", name);
    memcpy(header + 100, "0000644", 8);
    snprintf(header + 124, 12, "%011zo", size);
    memcpy(header + 136, "00000000000", 12);
    memcpy(header + 257, "ustar\00000", 8);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    assert_int_equal(fwrite(header, 1, 512, stream), 512);
    assert_int_equal(fwrite(data, 1, size, stream), size);
    if (size % 512)
        assert_int_equal(fwrite(zeros, 1, 512 - size % 512, stream), 512 - size % 512);
}

// An archive of images of noise. A quarter as many are truncated: the callback learns of it while
// others are decoded.
static void make_archive(const char *name, int members, uint64_t seed)
{
    char member[32];
    static const char zeros[1024];
    static uint8_t samples[3 * SIDE * SIDE];
    conv_context *context = api_open(1);
    conv_bytes file;
    for (size_t i = 0; i < sizeof samples; i++)
        samples[i] = (uint8_t)(random_bits(&seed) & 63);
    conv_image image = conv_image_interleaved(samples, SIDE, SIDE, 3, CONV_SAMPLE_U8, CONV_HOST);
    assert_ok(conv_encode_png(context, &image, 1, NULL, &file, NULL, NULL));
    FILE *stream = fopen(folder_path(name), "wb");
    assert_non_null(stream);
    for (int i = 0; i < members; i++) {
        if (i % 4 == 3) {
            snprintf(member, sizeof member, "bad%d.png", i);
            put_member(stream, member, file.data, file.size / 2);
        }
        snprintf(member, sizeof member, "%d.png", i);
        put_member(stream, member, file.data, file.size);
    }
    assert_int_equal(fwrite(zeros, 1, sizeof zeros, stream), sizeof zeros);
    assert_int_equal(fclose(stream), 0);
    conv_free(context, CONV_HOST, (void *)(uintptr_t)file.data);
    conv_context_destroy(context);
}

struct watched {
    const char *truncate; // a file that is shortened once an image has failed; or NULL
    int failures;
    conv_folder_progress result;
    conv_status status;
    char message[CONV_MESSAGE_SIZE];
};

static int watch(void *user, const conv_folder_progress *progress)
{
    struct watched *watched = user;
    if (!progress->path)
        return 0;
    watched->failures++;
    if (watched->truncate)
        (void)!truncate(watched->truncate, 5000);
    return 0;
}

static void run(struct watched *watched, const char *in, const char *out, int threads)
{
    const char *input = folder_path(in);
    conv_context *context = api_open(threads);
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    options.archives = 1;
    options.progress = watch;
    options.user = watched;
    watched->result = (conv_folder_progress){.size = sizeof watched->result};
    watched->status = conv_filter_folder(context, "gaussian5", &input, 1, folder_path(out),
                                         &options, &watched->result);
    snprintf(watched->message, sizeof watched->message, "%s", conv_context_message(context));
    conv_context_destroy(context);
}

// --- child processes -----------------------------------------------------------------------------

// Runs a test in a child, whose end by a signal is a failure of this one.
static void in_child(void (*test)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        test();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void demand(bool holds, int line, const char *text)
{
    if (holds)
        return;
    fprintf(stderr, "line %d: %s\n", line, text);
    _exit(1);
}
#define DEMAND(condition) demand(condition, __LINE__, #condition)

// --- tests ---------------------------------------------------------------------------------------

static void shorten(void)
{
    for (int round = 0; round < (CONV_SANITIZED ? 4 : 8); round++) {
        struct watched watched = {.truncate = folder_path("short.tar")};
        make_archive("short.tar", MEMBERS, (uint64_t)round);
        run(&watched, "short.tar", round % 2 ? "out" : "out.tar", 1 + round % 4);
        DEMAND(watched.failures > 0 && watched.result.failed > 0);
    }
}

UNIT_TEST(archives_that_become_shorter)
{
    in_child(shorten);
}

static void lose_reader(void)
{
    const char *path = folder_path("pipe.tar");
    DEMAND(mkfifo(path, 0600) == 0);
    pid_t reader = fork();
    if (reader == 0) {
        char byte;
        int fd = open(path, O_RDONLY);
        _exit(read(fd, &byte, 1) == 1 ? 0 : 1);
    }
    struct watched watched = {0};
    run(&watched, "in.tar", "pipe.tar", 2);
    DEMAND(watched.status == CONV_ERR_IO);
    waitpid(reader, NULL, 0);
}

UNIT_TEST(outputs_without_a_reader)
{
    in_child(lose_reader);
}

static void limit_size(void)
{
    struct rlimit limit = {100000, 100000};
    DEMAND(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    struct watched watched = {0};
    run(&watched, "in.tar", "large.tar", 2);
    DEMAND(watched.status == CONV_ERR_IO);
}

UNIT_TEST(files_beyond_the_limit)
{
    in_child(limit_size);
}

// The state of the process that every part of a program shares.
struct shared {
    void (*handlers[32])(int);
    int flags[32];
    sigset_t mask;
    mode_t umask;
    char folder[512], locale[128];
    size_t variables, text;
};

static void read_shared(struct shared *shared)
{
    memset(shared, 0, sizeof *shared);
    for (int i = 1; i < 32; i++) {
        struct sigaction action = {0};
        sigaction(i, NULL, &action);
        shared->handlers[i] = action.sa_handler;
        shared->flags[i] = action.sa_flags;
    }
    pthread_sigmask(SIG_SETMASK, NULL, &shared->mask);
    shared->umask = umask(027);
    umask(shared->umask);
    DEMAND(getcwd(shared->folder, sizeof shared->folder) != NULL);
    snprintf(shared->locale, sizeof shared->locale, "%s", setlocale(LC_ALL, NULL));
    for (char **variable = environ; *variable; variable++, shared->variables++)
        for (const char *c = *variable; *c; c++)
            shared->text = shared->text * 31 + (unsigned char)*c;
}

static struct shared before, during;

static int look(void *user, const conv_folder_progress *progress)
{
    (void)user;
    (void)progress;
    read_shared(&during);
    during.mask = before.mask; // this is a thread of the library
    return 0;
}

static void compare_shared(void)
{
    const char *input = folder_path("in.tar");
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &some, NULL);
    umask(017);
    read_shared(&before);
    conv_context *context = api_open(3);
    conv_folder_options options = CONV_FOLDER_OPTIONS_INIT;
    options.archives = 1;
    options.progress = look;
    DEMAND(conv_filter_folder(context, "gaussian5", &input, 1, folder_path("shared.tar"), &options,
                              NULL) == CONV_OK);
    DEMAND(memcmp(&before, &during, sizeof before) == 0);
    conv_context_destroy(context);
    read_shared(&during);
    DEMAND(memcmp(&before, &during, sizeof before) == 0);
}

UNIT_TEST(the_process_is_as_it_was)
{
    in_child(compare_shared);
}

static void *run_one(void *argument)
{
    struct watched *watched = argument;
    char out[32];
    snprintf(out, sizeof out, "two.%d.tar", (int)watched->result.found);
    run(watched, watched->result.found ? "missing.tar" : "in.tar", out, 2);
    return NULL;
}

// Two callers at once, and a child process afterwards.
static void run_two(void)
{
    for (int round = 0; round < (CONV_SANITIZED ? 1 : 3); round++) {
        struct watched watched[2] = {{.result.found = 0}, {.result.found = 1}};
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            DEMAND(pthread_create(&threads[i], NULL, run_one, &watched[i]) == 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        DEMAND(watched[0].status == CONV_OK && watched[0].result.done == MEMBERS);
        DEMAND(watched[0].failures == MEMBERS / 4 && watched[0].result.failed == MEMBERS / 4);
        DEMAND(watched[1].status != CONV_OK || watched[1].result.failed == 1);
        DEMAND(watched[1].result.done == 0 && !watched[0].message[0]);
    }
    pid_t child = fork();
    if (child == 0) {
        struct watched watched = {0};
        run(&watched, "in.tar", "child.tar", 2);
        _exit(watched.status == CONV_OK && watched.result.done == MEMBERS ? 0 : 1);
    }
    int status;
    DEMAND(waitpid(child, &status, 0) == child && status == 0);
}

UNIT_TEST(two_callers_and_a_child)
{
    in_child(run_two);
}

static int make_root(void **state)
{
    assert_int_equal(folder_make(state), 0);
    make_archive("in.tar", MEMBERS, 99);
    return 0;
}

UNIT_MAIN(make_root, folder_remove)
