#!/bin/sh
#SBATCH --job-name=emboss
#SBATCH --ntasks=4
#SBATCH --requeue
# Four tasks share a folder:    sbatch srun.sh IN OUT LOGS
# A job that is requeued skips what its journals list as done.
mkdir -p "$3"
srun --kill-on-bad-exit=0 conv emboss --recursive --shard auto "$1" "$2" \
    --resume "$3/journal-{shard}" --report "$3/report-{shard}-${SLURM_RESTART_COUNT:-0}.jsonl"
conv report merge "$3"/report-*.jsonl
