// SPDX-License-Identifier: MIT
// Finds out which process of a job this is, from the environment variables of Slurm, Open MPI and
// other MPI launchers.
#ifndef CONV_CLI_LAUNCHER_H
#define CONV_CLI_LAUNCHER_H

#include "base/err.h"

// The number of this process, from 0, and how many there are. CONV_ERR_USAGE if no launcher has set
// them, if several launchers contradict each other, or if the numbers are known not to divide the
// work: in a Slurm array, and in a batch script outside of srun.
enum conv_status conv_launcher_find_rank(int *rank, int *size, struct conv_err *err);

// The number of this process, from 0, among those of the job on the same machine; 0 if no launcher
// says so.
int conv_launcher_local_rank(void);

#endif
