// SPDX-License-Identifier: MIT
// The program: its commands with the backends of this build.
#include "cli/commands.h"

int main(int argc, char **argv)
{
    return conv_commands_main(conv_engine_devices, argc, argv);
}
