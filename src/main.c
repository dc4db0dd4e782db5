// SPDX-License-Identifier: MIT
// The program: its commands with the backends of this build. `conv bench` continues as the program
// conv-bench, which has the same command line.
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

#define NAME "conv-bench"

// The folder that this program is in, with a slash at its end; "./" if it cannot be found.
static void find_folder(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, slash ? "" : "./");
}

int conv_bench_main(const struct conv_options *options)
{
    char path[PATH_MAX];
    struct conv_err err = {0};
    find_folder(path, sizeof path - sizeof NAME);
    size_t folder = strlen(path);
    strcpy(path + folder, NAME);
    execv(path, options->argv);
    int errnum = errno;
    path[folder] = '\0';
    if (errnum == ENOENT)
        conv_err_set(&err, CONV_ERR_IO, "the program " NAME " is missing in %s", path);
    else
        conv_err_errno(&err, errnum, "cannot run %s" NAME, path);
    return conv_errors_fail(&err);
}

int main(int argc, char **argv)
{
    return conv_commands_main(conv_engine_devices, argc, argv);
}
