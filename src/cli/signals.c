// SPDX-License-Identifier: MIT
#include "cli/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/sink.h"

static atomic_int stop;           // written by the handler
static _Atomic uint64_t asked_at; // when the first signal came, conv_clock_ns; 0: none has
static atomic_bool is_polled;     // the command looks at `stop`
static atomic_int works;          // calls that do not
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

// A second signal that comes this soon is the first one once more: timeout(1) sends its signal to
// the program and then to the group that it is in.
#define SAME_NS 300000000

// An answer takes less than 200 ms.
#define PATIENCE_NS 100000000
#define LOOK_US 20000

// True if a reader has stalled. Each look must find the same call: a busy machine may let the
// program wait for its turn as long, and it then looks once.
static bool is_stalled(void)
{
    static _Atomic uint64_t seen;
    static atomic_int looks;
    uint64_t changed_at = atomic_load(&stall.changed_at);
    if (atomic_exchange(&seen, changed_at) != changed_at)
        atomic_store(&looks, 0);
    return atomic_fetch_add(&looks, 1) >= PATIENCE_NS / 1000 / LOOK_US &&
           conv_stall_lasts(&stall, PATIENCE_NS);
}

// After the first signal: ends the program if it is in work that cannot be cancelled, or waits for
// a reader that has stalled.
static void on_alarm(int)
{
    bool is_late = conv_clock_ns() - atomic_load(&asked_at) >= PATIENCE_NS;
    if ((is_late && atomic_load(&works) > 0) || is_stalled())
        end_at_once(atomic_load(&stop));
}

static void on_signal(int number)
{
    uint64_t now = conv_clock_ns(), first = 0;
    if (!atomic_load(&is_polled))
        end_at_once(number);
    if (!atomic_compare_exchange_strong(&asked_at, &first, now)) {
        if (now > first && now - first >= SAME_NS)
            end_at_once(number);
        return;
    }
    atomic_store(&stop, number);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    const struct itimerval look = {{0, LOOK_US}, {0, LOOK_US}};
    setitimer(ITIMER_REAL, &look, NULL);
}

void conv_signals_begin_work(void)
{
    atomic_fetch_add(&works, 1);
}

void conv_signals_end_work(void)
{
    atomic_fetch_sub(&works, 1);
}

static void on_truncation(int)
{
    static const char text[] = "conv: an input has become shorter while it was read\n";
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

void conv_signals_begin(void)
{
    prepare_sanitizer();
    // Threads that wait for an input poll the flag; writes are restarted and completed.
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    static const int ignorable[] = {SIGQUIT, SIGHUP}; // nohup
    for (size_t i = 0; i < sizeof ignorable / sizeof ignorable[0]; i++) {
        struct sigaction old;
        if (sigaction(ignorable[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(ignorable[i], &action, NULL);
    }
}

atomic_int *conv_signals_install(void)
{
    atomic_store(&is_polled, true);
    // A closed pipe or a file too large: errors of write(), with a message.
    struct sigaction action = {.sa_handler = SIG_IGN};
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGIO, &action, NULL); // ends a lease by which watch.c sees that a file is complete
    sigaction(SIGXFSZ, &action, NULL);
    return &stop;
}
