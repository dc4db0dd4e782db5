// SPDX-License-Identifier: MIT
// The share of a machine that a process of a job gets, from the variables of Slurm and MPI.
#include "base/limits.h"
#include "support/unit.h"

#define MIB ((size_t)1 << 20)
#define PHYSICAL (4096 * MIB)
#define CORES 64

static const char *const job_variables[] = {"SLURM_STEP_ID",      "SLURM_STEP_TASKS_PER_NODE",
                                            "SLURM_NODEID",       "SLURM_CPUS_PER_TASK",
                                            "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE",
                                            "SLURM_MEM_PER_CPU",  "OMPI_COMM_WORLD_LOCAL_SIZE"};

static int forget_job(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof job_variables / sizeof job_variables[0]; i++)
        unsetenv(job_variables[i]);
    return 0;
}

// Sets the values, "" for none, in the order of job_variables, and reads.
static struct conv_limits read_job(const char *const values[8], const struct conv_limits *before)
{
    struct conv_limits limits = *before;
    for (size_t i = 0; i < 8; i++)
        if (values[i][0])
            setenv(job_variables[i], values[i], 1);
        else
            unsetenv(job_variables[i]);
    conv_limits_read_job(&limits);
    return limits;
}

static const struct conv_limits whole = {.physical = PHYSICAL,
                                         .memory = PHYSICAL,
                                         .machine_cores = CORES,
                                         .allowed_cores = CORES,
                                         .cores = CORES};

UNIT_TEST(a_job_shares_the_cores_of_a_machine)
{
    static const struct {
        const char *values[8];
        int cores;
        const char *source;
    } cases[] = {
        {{"", "", "", "", "", "", "", ""}, 64, ""},
        {{"0", "4", "0", "", "", "", "", ""}, 16, "SLURM_STEP_TASKS_PER_NODE"},
        {{"0", "2(x3),1", "2", "", "", "", "", ""}, 32, "SLURM_STEP_TASKS_PER_NODE"},
        {{"0", "2(x3),1", "3", "", "", "", "", ""}, 64, ""},
        {{"0", "2(x3),1", "4", "", "", "", "", ""}, 64, ""}, // beyond the list
        {{"", "4", "0", "", "", "", "", ""}, 64, ""},        // not in a step
        {{"0", "4", "0", "3", "12", "", "", ""}, 3, "SLURM_CPUS_PER_TASK"},
        {{"0", "4", "0", "", "12", "", "", ""}, 3, "SLURM_CPUS_ON_NODE"},
        {{"0", "4", "0", "", "2", "", "", ""}, 1, "SLURM_CPUS_ON_NODE"},
        {{"", "", "", "", "8", "", "", ""}, 8, "SLURM_CPUS_ON_NODE"}, // a batch script
        {{"", "", "", "", "", "", "", "8"}, 8, "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {{"1", "1(x2)", "0", "1", "16", "", "", "4"}, 4, "SLURM_CPUS_ON_NODE"}, // mpirun in Slurm
        {{"0", "x", "0", "-1", "0", "", "", "99999999999999999999"}, 64, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conv_limits limits = read_job(cases[i].values, &whole);
        assert_int_equal(limits.cores, cases[i].cores);
        assert_string_equal(limits.cores_source, cases[i].source);
    }
}

UNIT_TEST(bound_processes_have_cores_of_their_own)
{
    struct conv_limits bound = whole;
    bound.allowed_cores = bound.cores = 4;
    const char *const values[8] = {"0", "4", "0", "", "", "", "", ""};
    assert_int_equal(read_job(values, &bound).cores, 4);
}

UNIT_TEST(a_job_shares_the_memory_of_a_machine)
{
    const char *const alone[8] = {"0", "1", "0", "", "", "1024", "", ""};
    struct conv_limits limits = read_job(alone, &whole);
    assert_int_equal(limits.memory, 1024 * MIB);
    assert_string_equal(limits.memory_source, "SLURM_MEM_PER_NODE");
    const char *const four[8] = {"0", "4", "0", "", "", "1024", "", ""};
    limits = read_job(four, &whole);
    assert_int_equal(limits.memory, 256 * MIB);
    assert_string_equal(limits.memory_source, "SLURM_STEP_TASKS_PER_NODE, SLURM_MEM_PER_NODE");
    const char *const by_cpu[8] = {"0", "2", "0", "", "8", "", "100", ""};
    assert_int_equal(read_job(by_cpu, &whole).memory, 400 * MIB);
    const char *const mpi[8] = {"", "", "", "", "", "", "", "4"};
    limits = read_job(mpi, &whole);
    assert_int_equal(limits.memory, PHYSICAL / 4);
    assert_true(conv_limits_memory_is_limited(&limits));
    // A control group of the whole job on this machine, as Slurm makes it.
    struct conv_limits group = whole;
    group.memory = 512 * MIB;
    group.memory_used = 100 * MIB;
    strcpy(group.memory_source, "memory.max of /sys/fs/cgroup/slurm");
    limits = read_job(mpi, &group);
    assert_int_equal(limits.memory, 128 * MIB);
    assert_int_equal(limits.memory_used, 25 * MIB);
}

UNIT_MAIN_EACH(forget_job, forget_job)
