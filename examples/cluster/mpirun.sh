#!/bin/sh
# Four processes share a folder:    mpirun.sh IN OUT LOGS
# Without the first setting Open MPI ends all processes when one reports a damaged image (exit code
# 1); without the second each process has one core.
mkdir -p "$3"
mpirun --mca orte_abort_on_non_zero_status 0 --bind-to none -n 4 \
    conv emboss --recursive --shard auto "$1" "$2" \
    --resume "$3/journal-{shard}" --report "$3/report-{shard}.jsonl"
conv report merge "$3"/report-*.jsonl
