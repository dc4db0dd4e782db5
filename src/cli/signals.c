// SPDX-License-Identifier: MIT
#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "pipeline/output.h"

static atomic_int stop; // a handler has no other way to speak to the program

static void on_signal(int number)
{
    int expected = 0;
    if (atomic_compare_exchange_strong(&stop, &expected, number))
        return;
    conv_output_abandon();
    _exit(128 + number);
}

atomic_int *conv_signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal};
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
    sigaction(SIGXFSZ, &action, NULL);
    return &stop;
}
