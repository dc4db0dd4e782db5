#!/bin/sh
# Eight shards, two at a time, each tried up to three times:    parallel.sh IN OUT LOGS
# On other hosts as well: parallel --sshlogin host1,host2, with the folders on a shared file system.
mkdir -p "$3"
seq 0 7 | parallel --jobs 2 --retries 3 conv emboss --recursive --shard '{}/8' "$1" "$2" \
    --resume "$3/journal-{}" --report "$3/report-{}.jsonl"
conv report merge "$3"/report-*.jsonl
