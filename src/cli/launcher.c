// SPDX-License-Identifier: MIT
// Seen with Slurm 22.05 and Open MPI 4.1: a batch script that asks for 4 tasks has SLURM_PROCID=0
// and SLURM_NTASKS=4 although it runs once, and no SLURM_STEP_ID, which srun sets. mpirun in a
// Slurm job starts one daemon per node with srun, whose SLURM_PROCID and SLURM_NTASKS its processes
// inherit. In a task of an array SLURM_NTASKS is empty, and SLURM_ARRAY_TASK_COUNT counts the tasks
// of the last submission only.
#include "cli/launcher.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/walk/shard.h"

struct launcher {
    const char *title, *rank, *size;
};

// The innermost launcher comes first: mpirun runs inside a Slurm job, not the other way round.
static const struct launcher launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
};
#define SLURM 2
#define LAUNCHERS 3

// NULL if it is not set, or empty.
static const char *look_up(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static bool parse(const char *text, long most, int *number)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    *number = (int)value;
    return *text >= '0' && *text <= '9' && !*end && !errno && value <= most;
}

static bool is_batch_script(void)
{
    return look_up("SLURM_JOB_ID") && !look_up("SLURM_STEP_ID");
}

// One task per node in a step: the daemons of another launcher.
static bool is_step_of_daemons(void)
{
    const char *tasks = look_up("SLURM_STEP_NUM_TASKS"), *nodes = look_up("SLURM_STEP_NUM_NODES");
    return tasks && nodes && strcmp(tasks, nodes) == 0;
}

static enum conv_status read_rank(const struct launcher *launcher, int *rank, int *size,
                                  struct conv_err *err)
{
    const char *rank_text = look_up(launcher->rank), *size_text = look_up(launcher->size);
    if (!rank_text || !size_text)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shard auto: %s is set, but %s is not; use --shard I/N",
                            rank_text ? launcher->rank : launcher->size,
                            rank_text ? launcher->size : launcher->rank);
    if (!parse(rank_text, CONV_SHARD_MOST, rank) || !parse(size_text, CONV_SHARD_MOST, size) ||
        *rank >= *size)
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shard auto: %s=%.20s and %s=%.20s make no sense; use --shard I/N",
                            launcher->rank, rank_text, launcher->size, size_text);
    return CONV_OK;
}

enum conv_status conv_launcher_find_rank(int *rank, int *size, struct conv_err *err)
{
    const struct launcher *found = NULL;
    if (look_up("SLURM_ARRAY_TASK_ID"))
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shard auto: in a Slurm array the number of shards must be given, "
                            "since a task cannot know how many tasks there are in total: --shard "
                            "$SLURM_ARRAY_TASK_ID/N");
    for (int i = 0; i < LAUNCHERS; i++) {
        int other = 0, others = 0;
        bool of_slurm = i == SLURM;
        // In an allocation without a step, and under a launcher that uses Slurm, these variables do
        // not belong to this process.
        if (of_slurm && (is_batch_script() || (found && is_step_of_daemons())))
            continue;
        // In a job that has not set the number of tasks both are NULL, or only the rank is set.
        if (!look_up(launchers[i].rank) && !look_up(launchers[i].size))
            continue;
        enum conv_status status = read_rank(&launchers[i], &other, &others, err);
        if (status)
            return status;
        if (found && (other != *rank || others != *size))
            return conv_err_set(err, CONV_ERR_USAGE,
                                "--shard auto: %s says %d/%d (%s), %s says %d/%d (%s); use --shard "
                                "I/N",
                                found->title, *rank, *size, found->rank, launchers[i].title, other,
                                others, launchers[i].rank);
        found = &launchers[i];
        *rank = other;
        *size = others;
    }
    if (found)
        return CONV_OK;
    if (is_batch_script())
        return conv_err_set(err, CONV_ERR_USAGE,
                            "--shard auto: this is a batch script, which runs once for all tasks; "
                            "start conv with srun, or use --shard I/N");
    return conv_err_set(err, CONV_ERR_USAGE,
                        "--shard auto: none of SLURM_PROCID, OMPI_COMM_WORLD_RANK and PMI_RANK is "
                        "set; start conv with srun or mpirun, or use --shard I/N");
}

int conv_launcher_local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int rank;
        const char *text = look_up(names[i]);
        if (text && parse(text, CONV_SHARD_MOST, &rank))
            return rank;
    }
    return 0;
}
