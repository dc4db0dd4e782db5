// SPDX-License-Identifier: MIT
// conv-bench, the program that `conv bench` runs: the command line with the benchmarks in it.
#include "cli/commands.h"

int main(int argc, char **argv)
{
    return conv_commands_main(conv_engine_devices, argc, argv);
}
