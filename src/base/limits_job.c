// SPDX-License-Identifier: MIT
// The share of a machine that one of several processes of a job may use. Slurm without its cgroup
// plugins, and mpirun without binding, state it only in the environment; a memory limit of a job's
// control group applies to all its processes on the machine together.
#include "base/limits_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A positive number from the environment; 0 if there is none.
static uint64_t read_variable(const char *name)
{
    const char *text = getenv(name);
    uint64_t number;
    return text && conv_limits_parse_number(text, &number) && number <= INT_MAX ? number : 0;
}

// Tasks of a Slurm step on this node: number SLURM_NODEID of a list such as "2(x3),1". 0: unknown.
static uint64_t count_slurm_tasks(void)
{
    const char *at = getenv("SLURM_STEP_TASKS_PER_NODE");
    if (!at || !getenv("SLURM_STEP_ID"))
        return 0;
    for (uint64_t node = read_variable("SLURM_NODEID");;) {
        char *end;
        uint64_t tasks = strtoull(at, &end, 10), times = 1;
        if (end == at || tasks > INT_MAX)
            return 0;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtoull(end + 2, &end, 10);
            end += *end == ')';
        }
        if (node < times)
            return tasks;
        node -= times;
        if (*end != ',')
            return 0;
        at = end + 1;
    }
}

static void note_cores(struct conv_limits *limits, uint64_t cores, const char *source)
{
    if (cores == 0)
        cores = 1;
    if (cores >= (uint64_t)limits->cores)
        return;
    limits->cores = (int)cores;
    snprintf(limits->cores_source, sizeof limits->cores_source, "%s", source);
}

void conv_limits_read_job(struct conv_limits *limits)
{
    // mpirun in a Slurm job: its processes inherit the variables of the daemon that started them.
    uint64_t local = read_variable("OMPI_COMM_WORLD_LOCAL_SIZE");
    const char *counted = "OMPI_COMM_WORLD_LOCAL_SIZE";
    bool of_slurm = local == 0;
    if (of_slurm) {
        local = count_slurm_tasks();
        counted = "SLURM_STEP_TASKS_PER_NODE";
    }
    uint64_t per_task = of_slurm ? read_variable("SLURM_CPUS_PER_TASK") : 0;
    uint64_t on_node = read_variable("SLURM_CPUS_ON_NODE");
    if (local == 0)
        local = 1;
    if (per_task)
        note_cores(limits, per_task, "SLURM_CPUS_PER_TASK");
    else if (on_node)
        note_cores(limits, on_node / local, "SLURM_CPUS_ON_NODE");
    // Bound processes have their own cores already.
    bool is_bound = limits->allowed_cores < limits->machine_cores;
    if (local > 1 && !is_bound && !limits->cores_source[0])
        note_cores(limits, (uint64_t)limits->cores / local, counted);
    uint64_t node_mib = read_variable("SLURM_MEM_PER_NODE");
    uint64_t cpu_mib = read_variable("SLURM_MEM_PER_CPU") * on_node;
    uint64_t mib = node_mib ? node_mib : cpu_mib;
    if (mib)
        conv_limits_note_memory(limits, mib << 20, 0,
                                node_mib ? "SLURM_MEM_PER_NODE" : "SLURM_MEM_PER_CPU", "");
    if (local > 1)
        conv_limits_share_memory(limits, local, counted);
}
