#!/bin/sh
# SPDX-License-Identifier: MIT
# Every function of these folders holds the locks that it states (base/lock.h), as far as clang's
# analysis sees; and that analysis finds what is planted here. Exits 77 without clang.
#   check_lock_rules.sh REPOSITORY
set -eu
cd "$1"
command -v clang >/dev/null || { echo "skipped: no clang"; exit 77; }
analyse() {
    clang -std=c2x -D_GNU_SOURCE -DCONV_VERSION='""' -Isrc -I. -Iinclude -fsyntax-only -Wthread-safety \
        -Werror=thread-safety "$@"
}

analyse $(find src/base src/io src/run src/engine src/report -name '*.c')

# No other mutexes, whose rules nothing checks.
! grep -rn 'pthread_mutex_t\b' src kernels | grep -v '^src/base/lock\.h:' || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check() { # NAME: the file of that name is refused, unless it is sound
    if [ "$1" = sound ]; then
        analyse "$work/$1.c"
    elif analyse "$work/$1.c" 2>"$work/messages"; then
        echo "not found: $1" && exit 1
    else
        grep -q Wthread-safety "$work/messages" || { cat "$work/messages" && exit 1; }
    fi
}
plant() { # NAME BODY: a function with a scheduler and archives that are written, which breaks a rule
    cat >"$work/$1.c" <<EOF
#include "io/archive/archive_turn.h"
#include "run/devices.h"
#include "run/scheduler.h"
void planted(struct conv_scheduler *s, struct conv_job *job, struct conv_archive_order *order, struct conv_err *err);
void planted(struct conv_scheduler *s, struct conv_job *job, struct conv_archive_order *order, struct conv_err *err)
{
    $2
    (void)s, (void)job, (void)order, (void)err;
}
EOF
    check "$1"
}
plant sound 'conv_lock_acquire(&s->lock); conv_jobs_drop(s, job); conv_lock_release(&s->lock);'
plant without_lock 'conv_jobs_drop(s, job);'
plant kept_lock 'conv_lock_acquire(&s->lock); conv_jobs_drop(s, job);'
plant twice 'conv_lock_acquire(&s->lock); (void)conv_devices_are_lost(s, err); conv_lock_release(&s->lock);'
plant wrong_lock 'conv_lock_acquire(&s->report_lock); conv_jobs_drop(s, job); conv_lock_release(&s->report_lock);'
plant archive_without_lock 'conv_archive_turn_take(order, NULL);'
plant archive_kept_lock 'conv_lock_acquire(&order->lock); conv_archive_turn_take(order, NULL);'
plant archive_twice 'conv_lock_acquire(&order->lock); conv_archive_turn_fail(order, err); conv_lock_release(&order->lock);'
{ cat src/base/descriptors.c && echo 'bool planted(void); bool planted(void) { return step_back(); }'; } >"$work/base.c"
check base
echo "lock rules hold"
