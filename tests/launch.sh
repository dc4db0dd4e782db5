#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a test: launch.sh NAME COMMAND [ARGUMENT...]
# With CONV_TEST_COSTS=FILE in the environment, appends a line to FILE: user and system time of the test
# and of all processes that it has waited for, elapsed time, all in seconds, and NAME.
name=$1
shift
[[ ${CONV_TEST_COSTS:-} && $name != cli_* ]] || exec "$@"
TIMEFORMAT="%U %S %R $name"
exec 3>&2
{ time "$@" 2>&3 3>&-; } 2>>"$CONV_TEST_COSTS"
