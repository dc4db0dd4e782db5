// SPDX-License-Identifier: MIT
// Limits of containers: control groups of every kind, planted below a folder that stands
// in for the root of the file system.
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/limits.h"
#include "support/folder.h"
#include "support/unit.h"

#define MIB ((size_t)1 << 20)
#define PHYSICAL (4096 * MIB)
#define CORES 64

#define MOUNT_V2 "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_UNIFIED "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
#define MOUNT_V1(root, controller)                                                                 \
    "35 31 0:32 " root " /sys/fs/cgroup/" controller " rw - cgroup cgroup rw," controller "\n"

static const struct conv_limits whole = {.physical = PHYSICAL,
                                         .memory = PHYSICAL,
                                         .machine_cores = CORES,
                                         .allowed_cores = CORES,
                                         .cores = CORES};

static void plant(const char *groups, const char *mounts)
{
    folder_write("/proc/self/cgroup", groups);
    folder_write("/proc/self/mountinfo", mounts);
}

static struct conv_limits look(void)
{
    struct conv_limits limits = whole;
    conv_limits_read_groups(&limits, folder_path(""));
    assert_true(limits.cores >= 1 && limits.cores <= CORES);
    assert_true(limits.memory_used <= limits.memory && limits.memory <= PHYSICAL);
    return limits;
}

static void expect(size_t memory, size_t used, int cores)
{
    struct conv_limits limits = look();
    assert_int_equal(limits.memory, memory);
    assert_int_equal(limits.memory_used, used);
    assert_int_equal(limits.cores, cores);
    assert_int_equal(limits.memory_source[0] != '\0', memory < PHYSICAL);
    assert_int_equal(limits.cores_source[0] != '\0', cores < CORES);
}

UNIT_TEST_IN(test_no_groups_no_limit, folder_make, folder_remove)
{
    expect(PHYSICAL, 0, CORES);
    folder_write("/proc/self/cgroup", "0::/a\n");
    expect(PHYSICAL, 0, CORES); // nothing mounted
    folder_write("/proc/self/mountinfo", MOUNT_V2);
    expect(PHYSICAL, 0, CORES); // nothing there
}

UNIT_TEST_IN(test_v2, folder_make, folder_remove)
{
    plant("0::/job\n", "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n" MOUNT_V2);
    folder_write("/sys/fs/cgroup/job/memory.max", "419430400\n");
    folder_write("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
    expect(400 * MIB, 0, 2); // 1.5 cores keep two workers busy
    // Page cache is given back on demand, the rest is not.
    folder_write("/sys/fs/cgroup/job/memory.current", "209715200\n");
    folder_write("/sys/fs/cgroup/job/memory.stat",
                 "anon 104857600\nfile 99614720\ninactive_file 52428800\nactive_file 41943040\n"
                 "slab_reclaimable 10485760\nworkingset_inactive_file 1\n");
    expect(400 * MIB, 100 * MIB, 2);
    struct conv_limits limits = look();
    assert_string_equal(strstr(limits.memory_source, "memory.max of "), limits.memory_source);
    assert_non_null(strstr(limits.memory_source, "/sys/fs/cgroup/job"));
    assert_non_null(strstr(limits.cores_source, "cpu.max of "));
    assert_int_equal(conv_limits_memory_left(&limits), 300 * MIB);
    assert_true(conv_limits_memory_is_limited(&limits));
    folder_write("/sys/fs/cgroup/job/memory.high", "314572800\n");
    expect(300 * MIB, 100 * MIB, 2);
}

UNIT_TEST_IN(test_v2_without_limits, folder_make, folder_remove)
{
    plant("0::/job\n", MOUNT_V2);
    folder_write("/sys/fs/cgroup/job/memory.max", "max\n");
    folder_write("/sys/fs/cgroup/job/memory.high", "max\n");
    folder_write("/sys/fs/cgroup/job/memory.current", "1048576\n");
    folder_write("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
    expect(PHYSICAL, 0, CORES);
    folder_write("/sys/fs/cgroup/job/memory.max", "1099511627776\n"); // more than the machine has
    folder_write("/sys/fs/cgroup/job/cpu.max", "100000000 100000\n");
    expect(PHYSICAL, 0, CORES);
}

// Slurm, systemd and Kubernetes set limits on groups above the process's own.
UNIT_TEST_IN(test_groups_above_count, folder_make, folder_remove)
{
    plant("0::/slice/job_1/step_0/task\n", MOUNT_V2);
    folder_write("/sys/fs/cgroup/slice/job_1/step_0/task/memory.max", "max\n");
    folder_write("/sys/fs/cgroup/slice/job_1/step_0/memory.max", "1073741824\n");
    folder_write("/sys/fs/cgroup/slice/job_1/memory.max", "536870912\n");
    folder_write("/sys/fs/cgroup/slice/memory.max", "2147483648\n");
    folder_write("/sys/fs/cgroup/slice/cpu.max", "300000 100000\n");
    folder_write("/sys/fs/cgroup/slice/job_1/cpu.max", "800000 100000\n");
    expect(512 * MIB, 0, 3);
    // The use of other processes in a wider group may leave less than a tighter group.
    folder_write("/sys/fs/cgroup/slice/memory.current", "1996488704\n"); // 1904 MiB
    expect(2048 * MIB, 1904 * MIB, 3);
    struct conv_limits limits = look();
    assert_non_null(strstr(limits.memory_source, "/sys/fs/cgroup/slice"));
    assert_null(strstr(limits.memory_source, "job_1"));
    assert_int_equal(conv_limits_memory_left(&limits), 256 * MIB); // an eighth, not 144 MiB
}

UNIT_TEST_IN(test_v1, folder_make, folder_remove)
{
    plant("9:name=systemd:/\n5:cpuset:/set\n4:memory:/a/b\n2:cpu,cpuacct:/c/d\n0::/\n",
          MOUNT_V1("/", "cpuset") MOUNT_V1("/", "cpu,cpuacct") MOUNT_V1("/", "memory")
              MOUNT_UNIFIED);
    folder_write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    folder_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "419430400\n");
    folder_write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "104857600\n");
    folder_write("/sys/fs/cgroup/memory/a/memory.stat",
                 "inactive_file 1\nactive_file 1\ntotal_inactive_file 41943040\n"
                 "total_active_file 10485760\n");
    folder_write("/sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_quota_us", "-1\n");
    folder_write("/sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_period_us", "100000\n");
    folder_write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "25000\n");
    folder_write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "50000\n");
    expect(400 * MIB, 50 * MIB, 1);
    struct conv_limits limits = look();
    assert_non_null(strstr(limits.memory_source, "memory.limit_in_bytes of "));
    assert_non_null(strstr(limits.cores_source, "cpu.cfs_quota_us of "));
}

// Memory by v1, cores by v2: both are mounted.
UNIT_TEST_IN(test_hybrid, folder_make, folder_remove)
{
    plant("4:memory:/a\n0::/b\n", MOUNT_V1("/", "memory") MOUNT_UNIFIED);
    folder_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "419430400\n");
    folder_write("/sys/fs/cgroup/unified/b/cpu.max", "400000 100000\n");
    expect(400 * MIB, 0, 4);
}

// In a container the mount shows only its own group; the path is the host's or begins with "/..".
UNIT_TEST_IN(test_containers, folder_make, folder_remove)
{
    const char *const groups[] = {
        "/docker/0123", "/docker/0123/inner", "/elsewhere/0123", "/", "/../other", "/.."};
    folder_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "419430400\n");
    folder_write("/sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 314572800\n");
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "4:memory:%s\n", groups[i]);
        plant(text, MOUNT_V1("/docker/0123", "memory"));
        expect(300 * MIB, 0, CORES);
        folder_write("/proc/self/mountinfo", MOUNT_V1("/", "memory"));
        expect(300 * MIB, 0, CORES);
        folder_write("/proc/self/mountinfo", MOUNT_V1("/../..", "memory"));
        expect(300 * MIB, 0, CORES);
    }
    plant("0::/../job\n", MOUNT_V2);
    folder_write("/sys/fs/cgroup/memory.max", "209715200\n");
    expect(200 * MIB, 0, CORES);
}

// A group of another container that is mounted somewhere is not ours.
UNIT_TEST_IN(test_the_mount_that_holds_the_group, folder_make, folder_remove)
{
    plant("0::/ab/c\n", "50 23 0:26 /a /mnt/of\\040another rw - cgroup2 cgroup2 rw\n"
                        "51 23 0:26 /ab /mnt/with\\040blank rw - cgroup2 cgroup2 rw\n" MOUNT_V2);
    folder_write("/mnt/of another/memory.max", "1048576\n");
    folder_write("/mnt/of another/b/c/memory.max", "1048576\n");
    folder_write("/mnt/with blank/c/memory.max", "419430400\n");
    expect(400 * MIB, 0, CORES);
}

UNIT_TEST_IN(test_garbage, folder_make, folder_remove)
{
    const char *const texts[] = {
        "",         "\n",     "x",    "-5\n",  "12x\n",
        "0\n",      "0x10\n", " 7\n", "1.5\n", "99999999999999999999999999\n",
        "max max\n"};
    plant("\n:\n::\n0\n0:\n0::\n0::relative\nx:memory\n4:memory:/job\n0::/job\n",
          "\n-\n - \n - cgroup2\n1 2 3 - cgroup2 cgroup2 rw\n1 2 3 4 - cgroup2 x rw\n"
          "1 2 3 / \\777 rw - cgroup2 cgroup2 rw,x\n" MOUNT_V2 MOUNT_V1("/", "memory"));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        folder_write("/sys/fs/cgroup/job/memory.max", texts[i]);
        folder_write("/sys/fs/cgroup/job/memory.current", texts[i]);
        folder_write("/sys/fs/cgroup/job/cpu.max", texts[i]);
        folder_write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", texts[i]);
        folder_write("/sys/fs/cgroup/memory/job/memory.stat", texts[i]);
        expect(PHYSICAL, 0, CORES);
    }
    folder_write("/sys/fs/cgroup/job/cpu.max", "100000 0\n");
    expect(PHYSICAL, 0, CORES);
    // A line that is longer than any buffer hides no other.
    char *line = malloc(100000);
    assert_non_null(line);
    memset(line, 'x', 99999);
    strcpy(line + 99990, "\n0::/job\n");
    folder_write("/proc/self/cgroup", line);
    free(line);
    folder_write("/sys/fs/cgroup/job/memory.max", "419430400\n");
    expect(400 * MIB, 0, CORES);
}

UNIT_TEST_IN(test_folders_in_place_of_files, folder_make, folder_remove)
{
    plant("0::/job\n", MOUNT_V2);
    folder_write("/sys/fs/cgroup/job/memory.max/x", "1\n"); // opens, but cannot be read
    folder_write("/sys/fs/cgroup/job/cpu.max/x", "1\n");
    folder_write("/sys/fs/cgroup/memory.max", "419430400\n");
    expect(400 * MIB, 0, CORES);
}

UNIT_TEST(test_this_process)
{
    struct conv_limits limits;
    cpu_set_t all, one;
    conv_limits_read(&limits);
    assert_true(limits.cores >= 1 && limits.cores <= limits.allowed_cores);
    assert_true(limits.memory > 0 && limits.memory <= limits.physical);

    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    conv_limits_read(&limits);
    assert_int_equal(limits.cores, 1);
    assert_int_equal(limits.allowed_cores, 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

UNIT_TEST(test_data_limit)
{
#if CONV_SANITIZED
    skip(); // a sanitizer maps far more memory than any limit
#endif
    struct conv_limits limits;
    struct rlimit old;
    conv_limits_read(&limits);
    assert_int_equal(getrlimit(RLIMIT_DATA, &old), 0);
    struct rlimit limit = {limits.memory / 4, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
    conv_limits_read(&limits);
    assert_int_equal(limits.memory, limit.rlim_cur);
    assert_true(limits.memory_used > 0 && limits.memory_used < limits.memory);
    assert_non_null(strstr(limits.memory_source, "RLIMIT_DATA"));
    assert_int_equal(setrlimit(RLIMIT_DATA, &old), 0);
}

// --- jobs ----------------------------------------------------------------------------------------

// The share of a machine that a process of a job gets, from the variables of Slurm and MPI.

static const char *const job_variables[] = {"SLURM_STEP_ID",      "SLURM_STEP_TASKS_PER_NODE",
                                            "SLURM_NODEID",       "SLURM_CPUS_PER_TASK",
                                            "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE",
                                            "SLURM_MEM_PER_CPU",  "OMPI_COMM_WORLD_LOCAL_SIZE"};

static int forget_job(void **)
{
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

UNIT_TEST_IN(a_job_shares_the_cores_of_a_machine, forget_job, forget_job)
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

UNIT_TEST_IN(bound_processes_have_cores_of_their_own, forget_job, forget_job)
{
    struct conv_limits bound = whole;
    bound.allowed_cores = bound.cores = 4;
    const char *const values[8] = {"0", "4", "0", "", "", "", "", ""};
    assert_int_equal(read_job(values, &bound).cores, 4);
}

UNIT_TEST_IN(a_job_shares_the_memory_of_a_machine, forget_job, forget_job)
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

UNIT_MAIN(NULL, NULL)
