// SPDX-License-Identifier: MIT
// --shard: the process's part of a job, and names of files that the processes do not share.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/option_table.h"
#include "io/walk/shard.h"

// --- launchers -----------------------------------------------------------------------------------

// Seen with Slurm 22.05 and Open MPI 4.1: a batch script that asks for 4 tasks has SLURM_PROCID=0
// and SLURM_NTASKS=4 although it runs once, and no SLURM_STEP_ID, which srun sets. mpirun in a
// Slurm job starts one daemon per node with srun, whose SLURM_PROCID and SLURM_NTASKS its processes
// inherit. In a task of an array SLURM_NTASKS is empty, and SLURM_ARRAY_TASK_COUNT counts the tasks
// of the last submission only.
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

// Reads digits and moves *text to what follows them.
static bool parse_number(const char **text, long *number)
{
    char *end;
    errno = 0;
    *number = strtol(*text, &end, 10);
    bool good = isdigit((unsigned char)**text) && errno == 0;
    *text = end;
    return good;
}

static bool parse(const char *text, int *number)
{
    long value;
    bool good = parse_number(&text, &value) && !*text && value <= CONV_SHARD_MOST;
    *number = (int)value;
    return good;
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
        return conv_err_usage(err, "--shard auto: %s is set, but %s is not; use --shard I/N",
                              rank_text ? launcher->rank : launcher->size,
                              rank_text ? launcher->size : launcher->rank);
    if (!parse(rank_text, rank) || !parse(size_text, size) || *rank >= *size)
        return conv_err_usage(err,
                              "--shard auto: %s=%.20s and %s=%.20s make no sense; use --shard I/N",
                              launcher->rank, rank_text, launcher->size, size_text);
    return CONV_OK;
}

// The number of this process, from 0, and how many there are. CONV_ERR_USAGE if no launcher has set
// them, if several launchers contradict each other, or if the numbers are known not to divide the
// work: in a Slurm array, and in a batch script outside of srun.
static enum conv_status find_rank(int *rank, int *size, struct conv_err *err)
{
    const struct launcher *found = NULL;
    if (look_up("SLURM_ARRAY_TASK_ID"))
        return conv_err_usage(
            err, "--shard auto: in a Slurm array the number of shards must be given, since a task "
                 "cannot know how many tasks there are in total: --shard $SLURM_ARRAY_TASK_ID/N");
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
            return conv_err_usage(
                err, "--shard auto: %s says %d/%d (%s), %s says %d/%d (%s); use --shard I/N",
                found->title, *rank, *size, found->rank, launchers[i].title, other, others,
                launchers[i].rank);
        found = &launchers[i];
        *rank = other;
        *size = others;
    }
    if (found)
        return CONV_OK;
    if (is_batch_script())
        return conv_err_usage(err, "--shard auto: this is a batch script, which runs once for all "
                                   "tasks; start conv with srun, or use --shard I/N");
    return conv_err_usage(err,
                          "--shard auto: none of SLURM_PROCID, OMPI_COMM_WORLD_RANK and PMI_RANK "
                          "is set; start conv with srun or mpirun, or use --shard I/N");
}

int conv_options_local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int rank;
        const char *text = look_up(names[i]);
        if (text && parse(text, &rank))
            return rank;
    }
    return 0;
}

// --- the option ----------------------------------------------------------------------------------

#define PLACE "{shard}" // in names of files

static enum conv_status parse_shard(struct conv_shard *shard, const char *text,
                                    struct conv_err *err)
{
    const char *at = text;
    long index, count;
    if (strcmp(text, "auto") == 0)
        return find_rank(&shard->index, &shard->count, err);
    if (!parse_number(&at, &index) || *at++ != '/' || !parse_number(&at, &count) || *at)
        return conv_err_usage(
            err, "--shard takes I/N, such as 0/4 for the first of four shards, or auto, not '%s'%s",
            text, text[0] == '/' ? " (a variable before the slash was empty)" : "");
    if (count < 1 || count > CONV_SHARD_MOST)
        return conv_err_usage(err, "--shard %s: there are 1 to %d shards", text, CONV_SHARD_MOST);
    if (index >= count)
        return conv_err_usage(err,
                              "--shard %s: shards are numbered from 0, so these are 0/%ld to "
                              "%ld/%ld (a Slurm array: --array=0-%ld)",
                              text, count, count - 1, count, count - 1);
    shard->index = (int)index;
    shard->count = (int)count;
    return CONV_OK;
}

// Replaces each place in *name; the result is stored in the options.
static enum conv_status expand(struct conv_options *options, const char **name,
                               struct conv_err *err)
{
    const char *from = *name, *place;
    if (!from || !strstr(from, PLACE))
        return CONV_OK;
    char *space = options->shard_names + options->shard_names_used;
    size_t size = sizeof options->shard_names - options->shard_names_used, used = 0;
    for (; used < size && (place = strstr(from, PLACE)); from = place + strlen(PLACE))
        used += (size_t)snprintf(space + used, size - used, "%.*s%d", (int)(place - from), from,
                                 options->inputs.shard.index);
    if (used < size)
        used += (size_t)snprintf(space + used, size - used, "%s", from);
    if (used >= size)
        return conv_err_usage(err, "the names with " PLACE " are too long");
    options->shard_names_used += used + 1;
    *name = space;
    return CONV_OK;
}

// Each task would replace the file of the others.
static enum conv_status refuse_shared(const struct conv_input_options *inputs, const char *option,
                                      const char *path, struct conv_err *err)
{
    if (!path || strstr(path, PLACE) || strncmp(path, "/dev/", 5) == 0 ||
        strcmp(inputs->shard_text, "auto") != 0 || inputs->shard.count == 1)
        return CONV_OK;
    return conv_err_usage(err,
                          "--%s %s would be one file of all %d tasks; put " PLACE
                          " into its name, which stands for the number of the task",
                          option, path, inputs->shard.count);
}

static enum conv_status expand_names(struct conv_options *options, struct conv_err *err)
{
    struct {
        const char *option, **path;
    } files[] = {{"resume", &options->outputs.resume_path},
                 {"report", &options->report.path},
                 {"trace", &options->report.trace_path},
                 {"html", &options->report.html_path}};
    enum conv_status status = CONV_OK;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && !status; i++) {
        status = refuse_shared(&options->inputs, files[i].option, *files[i].path, err);
        if (!status)
            status = expand(options, files[i].path, err);
    }
    const char **output = options->outputs.path ? &options->outputs.path
                          : !options->outputs.in_place && options->operand_count > 2
                              ? &options->operands[options->operand_count - 1]
                              : NULL;
    options->inputs.shard_in_output = output && strstr(*output, PLACE);
    return status || !output ? status : expand(options, output, err);
}

enum conv_status conv_option_check_shard(struct conv_options *options, struct conv_err *err)
{
    if (!options->inputs.shard_text)
        return CONV_OK;
    enum conv_status status = parse_shard(&options->inputs.shard, options->inputs.shard_text, err);
    if (status)
        return status;
    if (options->outputs.in_place) {
        if (conv_options_given(options, "shard-by") &&
            options->inputs.shard.by == CONV_SHARD_BY_BYTES)
            return conv_err_usage(err, "--shard-by bytes and --in-place cannot be combined: sizes "
                                       "change while other tasks begin");
        options->inputs.shard.by = CONV_SHARD_BY_NAME;
    }
    return expand_names(options, err);
}
