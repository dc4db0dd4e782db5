// SPDX-License-Identifier: MIT
#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "io/sink.h"

static atomic_int stop; // written by the handler
static struct conv_stall stall;
static atomic_int final; // 1 + the exit code of a run that has written everything

static _Atomic(struct conv_sink *) watched;

void conv_signals_watch(struct conv_sink *sink)
{
    atomic_store(&watched, sink);
}

struct conv_stall *conv_signals_stall(void)
{
    return &stall;
}

void conv_signals_set_final(int code)
{
    atomic_store(&final, 1 + code);
}

static void end_at_once(int number)
{
    struct conv_sink *sink = atomic_load(&watched);
    int code = atomic_load(&final);
    if (sink && sink->ops->remove_temporaries)
        sink->ops->remove_temporaries(sink);
    _exit(code ? code - 1 : 128 + number);
}

#define STALL_NS 1000000000
#define LOOK_SECONDS 1

// After the first signal: ends a run that waits for a reader that has stalled.
static void on_alarm(int number)
{
    (void)number;
    if (conv_stall_lasts(&stall, STALL_NS))
        end_at_once(atomic_load(&stop));
    alarm(LOOK_SECONDS);
}

static void on_signal(int number)
{
    int expected = 0;
    if (!atomic_compare_exchange_strong(&stop, &expected, number))
        end_at_once(number);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    alarm(LOOK_SECONDS);
}

static void on_truncation(int number)
{
    static const char text[] = "conv: an input archive has become shorter while it was read\n";
    (void)number;
    struct conv_sink *sink = atomic_load(&watched);
    if (sink && sink->ops->remove_temporaries)
        sink->ops->remove_temporaries(sink);
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}

void conv_signals_expect_truncation(void)
{
    struct sigaction action = {.sa_handler = on_truncation};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

// The thread sanitizer makes room for a thread's signals in its first call that may wait, and loses
// one that arrives meanwhile: GCC 12 maps the memory a second time in its handler.
static void prepare_sanitizer(void)
{
#ifdef __SANITIZE_THREAD__
    usleep(1);
#endif
}

atomic_int *conv_signals_install(void)
{
    prepare_sanitizer();
    // Threads that wait for an input poll the flag; writes are restarted and completed.
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    static const int endings[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        struct sigaction old;
        if (sigaction(endings[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) // nohup
            sigaction(endings[i], &action, NULL);
    }
    action.sa_handler =
        SIG_IGN; // a closed pipe or a file too large: errors of write(), with a message
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGIO, &action, NULL); // ends a lease by which watch.c sees that a file is complete
    sigaction(SIGXFSZ, &action, NULL);
    return &stop;
}
