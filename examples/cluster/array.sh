#!/bin/sh
#SBATCH --job-name=emboss-array
#SBATCH --array=0-7
#SBATCH --requeue
# Eight tasks, each when there is room for it:    sbatch array.sh IN OUT LOGS
# Tasks that are missing in the end:              sbatch --array=2,5 array.sh IN OUT LOGS
shards=8 # as in --array above; SLURM_ARRAY_TASK_COUNT would be 2 in the second command
mkdir -p "$3"
exec conv emboss --recursive --shard "$SLURM_ARRAY_TASK_ID/$shards" "$1" "$2" \
    --resume "$3/journal-{shard}" --report "$3/report-{shard}-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}.jsonl"
